// The state of a conversation at a terminal: its messages, its settings, and the commands that
// begin with a slash. It reads and writes the files that commands name; it uses neither terminal
// nor engine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/chat.h"
#include "engine/request.h"

namespace weft::cli {

class ChatSession {
  public:
    // settings: sampling and length of every answer. seeded: use the settings' seed; otherwise each
    // answer has a random seed. switches_thinking: the template has a switch for /think.
    // usual_thinking: its value if the user sets none, if known.
    ChatSession(std::string system, engine::Request settings, bool seeded, bool switches_thinking,
                std::optional<bool> usual_thinking);

    enum class Act { kAsk, kTell, kEnd };
    struct Next {
        Act act = Act::kTell;
        std::string text{};  // text shown to the user, before any answer
    };
    // Handles the user's input: a message, which becomes the last of the conversation, or a
    // command, whose first word is a slash followed by letters ("/etc/passwd" is a message).
    // only_text: always a message.
    Next Take(std::string_view entered, bool only_text = false);
    // NoteAnswer records the model's answer. ForgetQuestion drops the question if there is no
    // answer.
    void NoteAnswer(std::string text);
    void ForgetQuestion();
    // Stores a question that does not fit the context, until /drop. If the user asks another
    // question first, the stored question stays in the conversation, but the model does not receive
    // it before /undrop.
    void KeepQuestion() { pending_ = true; }
    // Whether the model gets messages from before the last turn.
    bool has_older_turns() const { return OldestKept(false) > first(); }

    // The conversation for the model, without excluded messages. Consecutive questions without an
    // answer between them become one message.
    chat::ChatInput conversation() const;
    // The settings, with the seed of the next answer.
    engine::Request NextRequest() const;

  private:
    void Add(const char* role, std::string text);
    Next Set(std::string_view words);
    Next SetSystem(std::string_view text);
    Next Drop();
    Next Undrop();
    Next Save(const std::string& path);
    Next Load(const std::string& path);
    Next Attach(const std::string& path);
    Next Retry();
    Next Think(std::string_view word);
    // Index of the first included message that is not a system message, or size().
    size_t first() const;
    // Index of the oldest message that /drop keeps, which is always a question: the last turn's
    // question, or (half) the first question of the newer half of the conversation.
    size_t OldestKept(bool half) const;
    size_t size() const { return input_.messages.size(); }
    std::string Settings() const;

    std::string system_;
    chat::ChatInput input_;
    engine::Request settings_;
    bool seeded_, switches_thinking_;
    std::optional<bool> usual_thinking_;
    std::vector<bool> left_out_;  // by message: excluded, the model does not get it
    bool pending_ = false;        // the last message is a question that did not fit the context
    std::string forgotten_;       // the last question, if it has no answer
    std::string attached_;        // files for the next message
};

}  // namespace weft::cli
