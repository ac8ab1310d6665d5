// Converts a conversation in OpenAI's form to one that the model's chat template accepts. Serving,
// training and `weft run` all call PrepareConversation, so a model is prompted with the same text
// that it was trained on.
//
// Limits: the caller bounds messages and tools. Thread: any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat.h"
#include "chat/template/template_capabilities.h"

namespace weft::chat {

// The forms that a template accepts for conversations without and with tools.
struct ConversationForms {
    TemplateCapabilities plain, tools;
    // The values of `reasoning_effort` that the template accepts, from the least on; empty: it
    // rejects none.
    std::vector<std::string> efforts{};
    bool reads_effort = false;       // `reasoning_effort` changes the prompt
    bool opens_reasoning = false;    // the prompt ends within reasoning
    bool switches_thinking = false;  // `enable_thinking` or `thinking` changes the prompt

    const TemplateCapabilities& Of(const ChatInput& input) const {
        return input.tools.is_array() && !input.tools.empty() ? tools : plain;
    }
};
// Renders probe conversations to find the forms (template_capabilities.h). Call once per model.
ConversationForms FindForms(const Chat& chat);

// Whether the word is an effort that some template accepts: "none" to "max".
bool IsEffort(std::string_view word);
// The accepted effort that is nearest to `effort`, or the greater of two equally near ones;
// `effort` itself if the template accepts it or if it is not a known effort.
std::string NearestEffort(const ConversationForms& forms, const std::string& effort);

// An invalid message. `code`: missing, invalid_type, unsupported_content or invalid_value.
struct MessageFault {
    size_t at = 0;        // index of the message
    std::string member;   // "content"; empty: the whole message
    std::string message;  // a sentence that names the member
    const char* code = "invalid_value";
};

// Converts the conversation in place:
//  - removes null members; renames role `developer` to `system` and `function` to `tool`;
//  - joins a content to one string and keeps the part sizes in kPartsMember for templates that
//    accept parts. An assistant's refusal counts as its text, and its parts of type "thinking" as
//    its reasoning; assistant and tool messages may have no content;
//  - gives calls the form {"type", "function": {"name", "arguments"}}; also accepts them without
//    the "function" object and as a single "function_call". Arguments given as JSON text are
//    parsed, so that templates do not encode them twice;
//  - calls FitConversation. Messages already in this form do not change.
[[nodiscard]] std::optional<MessageFault> PrepareConversation(const ConversationForms& forms,
                                                              ChatInput& input);

// Templates name their switch of reasoning `enable_thinking` or `thinking`. Sets the second
// variable to the first, unless it is set.
void NameThinking(OrderedJson& variables);

// Wraps each bare function of `list` (OpenAI's legacy `functions`) in {"type": "function",
// "function": ...}.
void WrapFunctions(OrderedJson& list);

// Returns the text of a content, and the byte sizes of its parts if it is a list. assistant: allow
// refusal parts, and parts of type "thinking", whose text is appended to `thought`, if not null.
// `name`: what a fault's message calls the content. A fault's `at` and `member` are not set.
[[nodiscard]] std::optional<MessageFault> ReadContentText(const OrderedJson& content,
                                                          bool assistant, const std::string& name,
                                                          std::string& text,
                                                          std::vector<size_t>* sizes = nullptr,
                                                          std::string* thought = nullptr);

// Sets the message's reasoning, unless it has one or `thought` is empty.
void AddThought(std::string thought, OrderedJson& message);

}  // namespace weft::chat
