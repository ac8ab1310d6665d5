// A model with its chat template: converts a conversation to prompt tokens as the server and
// training do (chat/conversation.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/answer.h"
#include "chat/chat.h"
#include "chat/conversation.h"
#include "cli/models/model_words.h"

namespace weft::cli {

struct ChatPrompt {
    std::vector<int32_t> tokens;
    bool in_reasoning = false;  // the prompt ends inside the reasoning that the template opens
    chat::ToolCallFormat family = chat::ToolCallFormat::kPlain;  // how the answer is parsed
};

class ChatModel {
  public:
    // The tokenizer of `words` must outlive the result. variables: an object with the template's
    // variables. Errors: as chat::Chat::Load.
    static Result<ChatModel> Load(const ModelWords& words, chat::OrderedJson variables);

    // input: has no tools; its own variables override Load's. Errors: errors of the model's
    // template.
    Result<ChatPrompt> MakePrompt(chat::ChatInput input) const;
    // Whether `enable_thinking` changes the prompt.
    bool SwitchesThinking() const;
    // The value of `enable_thinking` whose prompt is the one without it; nullopt: none.
    std::optional<bool> UsualThinking() const;

  private:
    // Tokens of a question with this `enable_thinking`; nullopt: without it.
    std::vector<int32_t> Probe(std::optional<bool> thinks) const;
    ChatModel(chat::Chat chat, chat::OrderedJson variables);

    chat::Chat chat_;
    chat::OrderedJson variables_;
    chat::ToolCallFormat family_;
    chat::ConversationForms forms_;
};

// Reads the value of --chat-template-kwargs; "": no variables. Errors: kUsage.
Result<chat::OrderedJson> ParseVariables(const std::string& text);

}  // namespace weft::cli
