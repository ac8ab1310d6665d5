// Which tokens of a conversation the assistant generates: those that training learns.
//
// A turn begins where the template, asked for an answer at that place, stops, and ends with the
// first token behind the turn's words that ends a generation. A template may close a turn only
// where another message follows; then a last answer gets the end that a message behind it would
// bring. To ask a template costs a rendering of all messages before the turn, so answers are
// remembered by the text that the template writes between the turns, and a conversation takes time
// linear in its length. (A template that writes a different text before every turn is asked for
// every turn, at most kMostAsked times.)
//
// Thread: a ChatTurns never changes, except that it gives a note once. It borrows the chat and the
// tokenizer.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/conversation.h"
#include "tokenizer/tokenizer.h"
#include "train/data/sample.h"

namespace weft::train {

inline constexpr size_t kMostAsked = 256;  // of a conversation

class ChatTurns {
  public:
    ChatTurns(const chat::Chat& chat, const tokenizer::Tokenizer& tokenizer);

    // The conversation as chat::PrepareConversation makes it from `input`, rendered once, with the
    // assistant's turns learned. A turn whose kLossMember is 0 is not learned.
    // kCorrupt: a message that can't be used; kUnsupported: turns that can't be told apart; those
    // of the template.
    Result<Sample> Encode(chat::ChatInput input) const;
    // The same conversation as text.
    Result<chat::Text> Render(chat::ChatInput input) const;
    // Once, if answers were learned without an end: a sentence for the user. Else empty.
    std::string TakeNote() const;

  private:
    friend class TurnMarker;
    struct Notes {
        std::atomic<bool> no_end = false, told_no_end = false;
    };

    Status Prepare(chat::ChatInput& input) const;
    void FindHeader();
    void FindClosing();
    std::string ClosingIn(chat::ChatInput longer, const chat::Text& open) const;
    bool EndsOpen(const chat::ChatInput& input, const chat::Text& text) const;

    const chat::Chat* chat_;
    const tokenizer::Tokenizer* tokenizer_;
    chat::ConversationForms forms_;
    // What the template writes in front of an answer: the part that it also writes when it asks
    // for one, and the rest. Empty: unknown.
    std::optional<std::string> header_, lead_;
    // What the template writes behind an answer up to its end token, but not behind the last one.
    std::string closing_;
    std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();  // of all copies
};

}  // namespace weft::train
