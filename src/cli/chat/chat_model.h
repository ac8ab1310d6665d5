// A model with its chat template: converts a conversation to prompt tokens as the server and
// training do (chat/conversation.h).
#pragma once

#include <cstdint>
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
    // The tokenizer of `words` must outlive the result. Errors: those of chat::Chat::Load.
    static Result<ChatModel> Load(const ModelWords& words);

    // input: has no tools. Errors: those of the model's template.
    Result<ChatPrompt> MakePrompt(chat::ChatInput input) const;

  private:
    explicit ChatModel(chat::Chat chat);

    chat::Chat chat_;
    chat::ToolCallFormat family_;
    chat::ConversationForms forms_;
};

}  // namespace weft::cli
