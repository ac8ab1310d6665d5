// A model that is talked to: from a conversation to the tokens of a prompt, prepared as the server
// and training prepare it (chat/conversation.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "chat/answer.h"
#include "chat/chat.h"
#include "chat/conversation.h"
#include "cli/model_words.h"

namespace weft::cli {

struct ChatPrompt {
    std::vector<int32_t> tokens;
    bool in_reasoning = false;  // it ends inside the reasoning that the template opens
    chat::ToolCallFormat family = chat::ToolCallFormat::kPlain;  // how the answer is taken apart
};

class ChatModel {
  public:
    // The tokenizer of `words` must outlive it. Errors: those of chat::Chat::Load.
    static Result<ChatModel> Load(const ModelWords& words);

    // input: without tools. Errors: those of the model's template.
    Result<ChatPrompt> MakePrompt(chat::ChatInput input) const;

  private:
    explicit ChatModel(chat::Chat chat);

    chat::Chat chat_;
    chat::ConversationForms forms_;
};

}  // namespace weft::cli
