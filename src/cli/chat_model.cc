#include "cli/chat_model.h"

#include <utility>

#include "chat/tool_form.h"

namespace weft::cli {

ChatModel::ChatModel(chat::Chat chat)
    : chat_(std::move(chat)), forms_{chat::FindToolForm(chat_, false), {}} {}

Result<ChatModel> ChatModel::Load(const ModelWords& words) {
    WEFT_ASSIGN(chat::Chat chat, chat::Chat::Load(words.source->meta(), *words.tokenizer));
    return ChatModel(std::move(chat));
}

Result<std::vector<int32_t>> ChatModel::Encode(chat::ChatInput input) const {
    if (const auto fault = chat::PrepareConversation(forms_, input)) {
        return MakeError(ErrorCode::kUsage, "message {} of the conversation: {}", fault->at + 1,
                         fault->message);
    }
    return chat_.Encode(input);
}

}  // namespace weft::cli
