// A conversation at a terminal: what was said, how the model is asked, and the commands that begin
// with a slash. No terminal, no engine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/chat.h"
#include "engine/request.h"

namespace weft::cli {

class ChatSession {
  public:
    // settings: sampling and length of every answer. seeded: with its seed, too, else each answer
    // has a random one.
    ChatSession(std::string system, engine::Request settings, bool seeded);

    enum class Act { kAsk, kTell, kEnd };
    struct Next {
        Act act = Act::kTell;
        std::string text{};  // what the user is told, before the answer if there is one
    };
    // What the user entered: a message, which becomes the conversation's last, or a command: its
    // first word is a slash and letters ("/etc/passwd" is none). only_text: a message in any case.
    Next Take(std::string_view entered, bool only_text = false);
    // What the model said to that; or that it said nothing, and nothing was asked.
    void NoteAnswer(std::string text);
    void ForgetQuestion();
    // The question does not fit the context: it waits for /drop. If another one comes first, it
    // stays in the conversation, but the model does not get it before /undrop.
    void KeepQuestion() { pending_ = true; }
    // The model gets messages that come before the last turn.
    bool has_older_turns() const { return OldestKept(false) > first(); }

    // The conversation that the model gets, without what is left out. Questions with no answer
    // between them are one message.
    chat::ChatInput conversation() const;
    // The settings, with the seed of the next answer.
    engine::Request NextRequest() const;

  private:
    void Add(const char* role, std::string text);
    Next Set(std::string_view words);
    Next SetSystem(std::string_view text);
    Next Drop();
    Next Undrop();
    // Index of the first message that is not the system's and not left out, or size().
    size_t first() const;
    // Index of the oldest message that /drop leaves in, which is a question: that of the last turn,
    // or of the newer `half` of the conversation.
    size_t OldestKept(bool half) const;
    size_t size() const { return input_.messages.size(); }
    std::string Settings() const;

    std::string system_;
    chat::ChatInput input_;
    engine::Request settings_;
    bool seeded_;
    std::vector<bool> left_out_;  // by message: the model does not get it
    bool pending_ = false;        // the last message is a question that did not fit the context
};

}  // namespace weft::cli
