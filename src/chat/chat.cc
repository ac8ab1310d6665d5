#include "chat/chat.h"

#include <algorithm>

namespace weft::chat {
namespace {

struct Form {
    std::string_view markers[3];  // special tokens that a vocabulary of this form has
    std::string_view text;
};

constexpr Form kForms[] = {
    {{"<|im_start|>", "<|im_end|>", ""},
     "{% for message in messages %}"
     "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
     "{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {{"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     "{% for message in messages %}"
     "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}"
     "{{ message.content | trim + '<|eot_id|>' }}"
     "{% endfor %}"
     "{% if add_generation_prompt %}"
     "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
     "{% endif %}"},
};

bool Has(const tokenizer::Tokenizer& tokenizer, std::string_view marker) {
    const int32_t id = tokenizer.Find(marker);
    return marker.empty() || tokenizer.IsSpecial(id) ||
           tokenizer.Type(id) == tokenizer::TokenType::kUserDefined;
}

const Form* FormOf(const tokenizer::Tokenizer& tokenizer) {
    for (const Form& form : kForms) {
        const bool all = std::all_of(std::begin(form.markers), std::end(form.markers),
                                     [&](std::string_view each) { return Has(tokenizer, each); });
        if (all) return &form;
    }
    return nullptr;
}

// How GGUF spells a token may differ from how templates do: SPM's U+2581 is a blank.
std::string TextOf(const tokenizer::Tokenizer& tokenizer, int32_t id) {
    return std::string(tokenizer.Piece(id));
}

}  // namespace

Chat::Chat(ChatTemplate plain, const tokenizer::Tokenizer& tokenizer)
    : plain_(std::move(plain)), tokenizer_(&tokenizer) {
    const tokenizer::TokenizerData& data = tokenizer.data();
    const std::pair<const char*, int32_t> known[] = {
        {"bos_token", data.bos},
        {"eos_token", data.eos},
        {"unk_token", data.unk},
        {"pad_token", data.pad},
    };
    for (const auto& [name, id] : known) {
        if (id >= 0) tokens_.emplace_back(name, TextOf(tokenizer, id));
    }
}

Result<Chat> Chat::Make(std::string_view chat_template, const tokenizer::Tokenizer& tokenizer) {
    if (chat_template.empty()) {
        const Form* form = FormOf(tokenizer);
        if (form == nullptr) {
            return MakeError(ErrorCode::kUnsupported,
                             "chat: the model has no chat template, and its vocabulary has no "
                             "markers of ChatML or Llama 3. With --raw the prompt is taken as "
                             "it is");
        }
        chat_template = form->text;
    }
    auto parsed = ChatTemplate::Parse(chat_template);
    if (!parsed.ok()) {
        return Error{parsed.error().code,
                     parsed.error().message + ". With --raw the prompt is taken as it is"};
    }
    Chat chat(std::move(parsed).value(), tokenizer);
    chat.FitNoTools();
    return chat;
}

// Some templates (llama.cpp's own) ask whether `tools` is defined, and walk through it.
void Chat::FitNoTools() {
    ChatInput question = OneQuestion("", "Do it.");
    question.now_s = 1;
    if (plain_.Render(question, tokens_).ok()) return;
    plain_.LeaveToolsOut(true);
    plain_.LeaveToolsOut(plain_.Render(question, tokens_).ok());
}

Result<Chat> Chat::Load(const model_files::Metadata& meta, const tokenizer::Tokenizer& tokenizer) {
    WEFT_ASSIGN(const std::string plain, meta.StringOr("tokenizer.chat_template", ""));
    WEFT_ASSIGN(const std::string tools, meta.StringOr("tokenizer.chat_template.tool_use", ""));
    WEFT_ASSIGN(Chat chat, Make(plain, tokenizer));
    if (!tools.empty()) {
        WEFT_ASSIGN(chat.with_tools_, ChatTemplate::Parse(tools));
    }
    return chat;
}

Result<Text> Chat::Render(const ChatInput& input) const {
    const bool tools = with_tools_.has_value() && input.tools.is_array() && !input.tools.empty();
    return (tools ? *with_tools_ : plain_).Render(input, tokens_);
}

std::vector<int32_t> Chat::Encode(const Text& text) const {
    std::vector<int32_t> ids = tokenizer_->Encode(
        text.view(), {.add_special = false, .parse_special = true, .plain = text.given()});
    const tokenizer::TokenizerData& data = tokenizer_->data();
    const bool wants_bos = data.add_bos && (ids.empty() || ids.front() != data.bos);
    if (wants_bos) ids.insert(ids.begin(), data.bos);
    return ids;
}

Result<std::vector<int32_t>> Chat::Encode(const ChatInput& input) const {
    WEFT_ASSIGN(const Text text, Render(input));
    return Encode(text);
}

ChatInput OneQuestion(std::string_view system, std::string_view question) {
    ChatInput input;
    const auto add = [&](const char* role, std::string_view content) {
        input.messages.push_back(OrderedJson{{"role", role}, {"content", std::string(content)}});
    };
    if (!system.empty()) add("system", system);
    add("user", question);
    return input;
}

}  // namespace weft::chat
