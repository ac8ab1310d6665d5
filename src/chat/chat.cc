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

constexpr std::string_view kProbeWords = "weft probe words";
// How GGUF spells a token may differ from how templates do: SPM's U+2581 is a blank.
std::string TextOf(const tokenizer::Tokenizer& tokenizer, int32_t id) {
    return std::string(tokenizer.Piece(id));
}

// Renders made-up conversations to see which messages the template shows.
class Prober {
  public:
    using Takes = ChatTemplate::Takes;

    Prober(ChatTemplate& probed, const std::vector<std::pair<std::string, std::string>>& tokens,
           bool tools)
        : probed_(probed), tokens_(tokens), tools_(tools) {}

    struct Seen {
        bool renders = false, shows = false;
    };
    // Renders a message of `role` (user, assistant or system) and looks for its words.
    Seen See(std::string_view role, const Takes& takes) const {
        ChatInput input;
        const auto add = [&](std::string_view speaker, std::string_view words) {
            input.messages.push_back({{"role", speaker}, {"content", words}});
        };
        if (role == "system") add(role, kProbeWords);
        add("user", role == "user" ? kProbeWords : "Do it.");
        if (role == "assistant") add(role, kProbeWords);
        if (role == "assistant") add("user", "Do it.");
        if (tools_) {
            const OrderedJson none{{"type", "object"}, {"properties", OrderedJson::object()}};
            const OrderedJson function{
                {"name", "f"}, {"description", "A function."}, {"parameters", none}};
            input.tools = OrderedJson::array({{{"type", "function"}, {"function", function}}});
        }
        input.now_s = 1;
        probed_.SetTakes(takes);
        const auto text = probed_.Render(input, tokens_);
        return {text.ok(), text.ok() && text->view().find(kProbeWords) != std::string_view::npos};
    }
    // Whether a message of `role` is shown as parts alone; where no form shows it, as the user's.
    bool WantsParts(std::string_view role, Takes takes, bool Takes::*parts) const {
        for (const bool tried : {false, true}) {
            takes.*parts = tried;
            if (See(role, takes).shows) return tried;
        }
        return takes.user_parts;
    }

  private:
    ChatTemplate& probed_;
    const std::vector<std::pair<std::string, std::string>>& tokens_;
    bool tools_;
};

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
    WEFT_TRY(chat.Fit(chat.plain_, false));
    return chat;
}

// Finds out how the template takes contents and absent tools (some of llama.cpp's ask whether
// `tools` is defined, and walk through it). A template that refuses every probe stays as it is: its
// own error tells the user more.
Status Chat::Fit(ChatTemplate& to_fit, bool tools) const {
    const Prober prober(to_fit, tokens_, tools);
    bool renders = false;
    for (const bool left_out : {false, true}) {
        for (const bool parts : {false, true}) {
            ChatTemplate::Takes takes{left_out, parts, parts, parts};
            const Prober::Seen seen = prober.See("user", takes);
            renders = renders || seen.renders;
            if (!seen.shows) continue;
            takes.assistant_parts =
                prober.WantsParts("assistant", takes, &Prober::Takes::assistant_parts);
            takes.system_parts = prober.WantsParts("system", takes, &Prober::Takes::system_parts);
            to_fit.SetTakes(takes);
            return {};
        }
    }
    to_fit.SetTakes({});
    if (!renders) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "chat: the chat template leaves out what the user says, both as a string and "
                     "as a list of parts, so the model would not see it. Give another template, or "
                     "with --raw the prompt is taken as it is");
}

Result<Chat> Chat::Load(const model_files::Metadata& meta, const tokenizer::Tokenizer& tokenizer) {
    WEFT_ASSIGN(const std::string plain, meta.StringOr("tokenizer.chat_template", ""));
    WEFT_ASSIGN(const std::string tools, meta.StringOr("tokenizer.chat_template.tool_use", ""));
    WEFT_ASSIGN(Chat chat, Make(plain, tokenizer));
    if (!tools.empty()) {
        WEFT_ASSIGN(chat.with_tools_, ChatTemplate::Parse(tools));
        WEFT_TRY(chat.Fit(*chat.with_tools_, true));
    }
    return chat;
}

Result<Text> Chat::Render(const ChatInput& input) const {
    const bool tools = with_tools_.has_value() && input.tools.is_array() && !input.tools.empty();
    return (tools ? *with_tools_ : plain_).Render(input, tokens_);
}

std::vector<int32_t> Chat::Encode(const Text& text,
                                  std::vector<tokenizer::SpecialMark>* marks) const {
    if (marks != nullptr) marks->assign(1, {});
    std::vector<int32_t> ids = tokenizer_->Encode(
        text.view(),
        {.add_special = false, .parse_special = true, .plain = text.given(), .marks = marks});
    const tokenizer::TokenizerData& data = tokenizer_->data();
    const bool wants_bos = data.add_bos && (ids.empty() || ids.front() != data.bos);
    if (!wants_bos) return ids;
    ids.insert(ids.begin(), data.bos);
    if (marks == nullptr) return ids;
    for (tokenizer::SpecialMark& mark : *marks) ++mark.token;
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
