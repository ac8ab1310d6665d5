// Finds the tokens of a conversation that the assistant generates: training learns these tokens.
//
// A turn begins where the template's generation prompt ends. It ends with the first
// end-of-generation token after the turn's text. Some templates close a turn only if another
// message follows; then the last answer gets the end that a following message would add. A template
// query renders all messages before the turn, so ChatTurns caches answers by the text that the
// template writes between turns, and a conversation takes linear time. (For a template that writes
// a different text before every turn, ChatTurns queries every turn, at most kMostAsked.)
//
// Thread: a ChatTurns is immutable, except that it returns each note only once. It borrows the chat
// and the tokenizer.
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

inline constexpr size_t kMostAsked = 256;  // per conversation

class ChatTurns {
  public:
    ChatTurns(const chat::Chat& chat, const tokenizer::Tokenizer& tokenizer);

    // Renders the conversation that chat::PrepareConversation makes from `input`, once, and marks
    // the assistant's turns as learned. A turn whose kLossMember is 0 is not learned.
    // Errors: kCorrupt: an invalid message; kUnsupported: turns that can't be told apart; the
    // template's.
    Result<Sample> Encode(chat::ChatInput input) const;
    // The same conversation as text.
    Result<chat::Text> Render(chat::ChatInput input) const;
    // A sentence for the user, once, if answers were learned without an end token. Otherwise empty.
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
    // The text that the template writes before an answer: the part that is also in its generation
    // prompt, and the rest. Empty: unknown.
    std::optional<std::string> header_, lead_;
    // The text between an answer and its end token, which the last answer lacks.
    std::string closing_;
    std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();  // shared by all copies
};

}  // namespace weft::train
