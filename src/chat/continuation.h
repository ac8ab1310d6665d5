// Renders a conversation whose last message, of the assistant, the model continues: the prompt ends
// with the message's text, as if the model had just written it.
//
// The template renders the message with a probe in place of its text, and the prompt is cut at the
// probe: so the markers before the text are the template's own, and the text itself is neither
// trimmed nor closed. If the template does not show the probe, the text follows the generation
// prompt.
#pragma once

#include <string>

#include "base/result.h"
#include "chat/answer.h"
#include "chat/chat.h"

namespace weft::chat {

// The part of the message that is continued. kLast: the content, or the reasoning of a message
// that has only reasoning.
enum class ContinuedPart { kLast, kContent, kReasoning };

struct ContinuedPrompt {
    Text text;
    bool in_reasoning = false;
    // Text of the turn after the generation prompt, for the parser of the answer: the markers of
    // the continued part, and one character in place of its text.
    std::string begun{};
    std::string words{};  // the text that is continued
};

// Whether the message has a text to continue.
bool HasWords(const OrderedJson& message);

// input: prepared (PrepareConversation); its last message has text, and no calls. If the content
// itself contains reasoning between the family's markers, that becomes `reasoning_content`. Errors:
// as Chat::Render.
Result<ContinuedPrompt> RenderContinued(const Chat& chat, ChatInput input, ToolCallFormat family,
                                        ContinuedPart part = ContinuedPart::kLast);

// Text that ends a reasoning which the template opened and leaves it empty.
std::string ClosedThought(ToolCallFormat family);

}  // namespace weft::chat
