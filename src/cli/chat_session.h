// A conversation at a terminal: what was said, how the model is asked, and the commands that begin
// with a slash. No terminal, no engine.
#pragma once

#include <string>
#include <string_view>

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
    // The question does not fit the context: it waits for /drop, or the next question replaces it.
    void KeepQuestion() { pending_ = true; }

    // The conversation that the model gets, without the dropped turns.
    chat::ChatInput conversation() const;
    // The settings, with the seed of the next answer.
    engine::Request NextRequest() const;
    // Messages, without the system's.
    size_t size() const;

  private:
    Next Set(std::string_view words);
    Next SetSystem(std::string_view text);
    Next Drop();
    Next Undrop();
    // Index of the first message after the system message that the model gets.
    size_t first() const { return (system_.empty() ? 0 : 1) + dropped_; }
    std::string Settings() const;

    std::string system_;
    chat::ChatInput input_;
    engine::Request settings_;
    bool seeded_;
    size_t dropped_ = 0;    // messages after the system message that the model does not get
    bool pending_ = false;  // the last message is a question that did not fit the context
};

}  // namespace weft::cli
