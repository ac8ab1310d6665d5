#include "cli/chat/chat_model.h"

#include <utility>

#include "chat/template/template_capabilities.h"

namespace weft::cli {

ChatModel::ChatModel(chat::Chat chat)
    : chat_(std::move(chat)),
      family_(chat::FamilyOf(chat_)),
      forms_{chat::FindCapabilities(chat_, false), {}} {}

Result<ChatModel> ChatModel::Load(const ModelWords& words) {
    WEFT_ASSIGN(chat::Chat chat, chat::Chat::Load(words.source->meta(), *words.tokenizer));
    return ChatModel(std::move(chat));
}

Result<ChatPrompt> ChatModel::MakePrompt(chat::ChatInput input) const {
    if (const auto fault = chat::PrepareConversation(forms_, input)) {
        return MakeError(ErrorCode::kUsage, "message {} of the conversation: {}", fault->at + 1,
                         fault->message);
    }
    WEFT_ASSIGN(const chat::Text text, chat_.Render(input));
    return ChatPrompt{chat_.Encode(text), chat::EndsInReasoning(text.view()), family_};
}

}  // namespace weft::cli
