#include "cli/chat/chat_model.h"

#include <utility>

#include "base/json.h"
#include "chat/template/template_capabilities.h"

namespace weft::cli {

ChatModel::ChatModel(chat::Chat chat, chat::OrderedJson variables)
    : chat_(std::move(chat)),
      variables_(std::move(variables)),
      family_(chat::FamilyOf(chat_)),
      forms_(chat::FindForms(chat_)) {}

Result<ChatModel> ChatModel::Load(const ModelWords& words, chat::OrderedJson variables) {
    WEFT_ASSIGN(chat::Chat chat, chat::Chat::Load(words.source->meta(), *words.tokenizer));
    return ChatModel(std::move(chat), std::move(variables));
}

Result<ChatPrompt> ChatModel::MakePrompt(chat::ChatInput input) const {
    if (const auto fault = chat::PrepareConversation(forms_, input)) {
        return MakeError(ErrorCode::kUsage, "message {} of the conversation: {}", fault->at + 1,
                         fault->message);
    }
    chat::OrderedJson variables = variables_;
    if (input.extra.is_object()) variables.update(input.extra);
    chat::NameThinking(variables);
    input.extra = std::move(variables);
    WEFT_ASSIGN(const chat::Text text, chat_.Render(input));
    return ChatPrompt{chat_.Encode(text), chat::EndsInReasoning(text.view()), family_};
}

std::vector<int32_t> ChatModel::Probe(std::optional<bool> thinks) const {
    chat::ChatInput input = chat::OneQuestion("", "a");
    if (thinks) input.extra = {{"enable_thinking", *thinks}, {"thinking", *thinks}};
    const auto made = MakePrompt(std::move(input));
    return made.ok() ? made->tokens : std::vector<int32_t>();
}

bool ChatModel::SwitchesThinking() const {
    return forms_.switches_thinking;
}

std::optional<bool> ChatModel::UsualThinking() const {
    if (!SwitchesThinking()) return {};
    const std::vector<int32_t> usual = Probe({});
    return usual == Probe(true)    ? std::optional(true)
           : usual == Probe(false) ? std::optional(false)
                                   : std::nullopt;
}

Result<chat::OrderedJson> ParseVariables(const std::string& text) {
    if (text.empty()) return chat::OrderedJson::object();
    auto json = ParseOrderedJsonText(text);
    if (json.ok() && json->is_object()) return json;
    return MakeError(ErrorCode::kUsage,
                     "--chat-template-kwargs: '{}' is not a JSON object{}. Write, for example, "
                     "'{{\"enable_thinking\": false}}'",
                     text.substr(0, 200), json.ok() ? "" : ": " + json.error().message);
}

}  // namespace weft::cli
