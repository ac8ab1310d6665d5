// Finds the tokens of a conversation that the assistant generates. Training learns these tokens:
// their predictions count in the loss.
//
// A turn begins where the template's generation prompt ends. It ends with the first end token
// (Tokenizer::EndsMessage) after the turn's text. A template may write a call's result inside of
// the turn: the turn then continues with its own text behind the result. A template may repeat a
// call's name or id in the result's header, which does not belong to the turn. Some templates close
// a turn only if another message follows. Then ChatTurns adds to the last answer the end that the
// template would write before another message. To find where the generation prompt and a turn
// without an end token end, ChatTurns renders all messages up to there. It remembers the result for
// turns around which the template writes the same text, except for numbers, so a conversation takes
// linear time. (If the template writes a different text around every turn, ChatTurns renders for
// every turn, at most kMostRenderings times.)
//
// Thread: any; a ChatTurns is immutable, except that it returns each note only once. The chat and
// the tokenizer must outlive it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/conversation.h"
#include "tokenizer/tokenizer.h"
#include "train/data/control_tokens.h"
#include "train/data/sample.h"

namespace weft::train {

inline constexpr size_t kMostRenderings = 256;  // renderings per conversation

class ChatTurns {
  public:
    ChatTurns(const chat::Chat& chat, const tokenizer::Tokenizer& tokenizer);

    // Prepares `input` (chat::PrepareConversation), renders the conversation, and marks the
    // assistant's turns as learned, except turns whose chat::kLossMember is 0.
    // Errors: kCorrupt: an invalid message; kUnsupported: turns that can't be distinguished in the
    // rendered text; errors of the template.
    // control: looks for control tokens in texts of the record; may be null.
    Result<Sample> Encode(chat::ChatInput input, const ControlTokens* control = nullptr) const;
    // The tokens of the conversation and of the header of the next answer. Errors: as for Encode.
    Result<std::vector<int32_t>> EncodePrompt(chat::ChatInput input,
                                              const ControlTokens* control = nullptr) const;
    // The conversation as text, rendered as by Encode.
    Result<chat::Text> Render(chat::ChatInput input) const;
    // Returns a sentence for the user if answers were learned without an end token; "" if there
    // were none, or if TakeNote has already returned it.
    std::string TakeNote() const;

  private:
    friend class TurnMarker;
    struct Notes {
        std::atomic<bool> no_end = false, warned_no_end = false;
    };

    Status Prepare(chat::ChatInput& input) const;
    void FindHeader();
    void FindClosing();
    std::string ClosingIn(chat::ChatInput longer, const chat::Text& open) const;
    bool EndsOpen(const chat::ChatInput& input, const chat::Text& text) const;

    const chat::Chat* chat_;
    const tokenizer::Tokenizer* tokenizer_;
    chat::ConversationForms forms_;
    // The text that the template writes before an answer: the part that is also in the generation
    // prompt (header_), and the rest (lead_). nullopt: unknown.
    std::optional<std::string> header_, lead_;
    // The text that ends an answer before another message, up to the end token. Missing after the
    // last answer.
    std::string closing_;
    std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();  // shared by all copies
};

}  // namespace weft::train
