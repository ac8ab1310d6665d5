#include "chat/chat.h"

#include <algorithm>

namespace weft::chat {
namespace {

// The next step in each command that needs a template.
constexpr const char* kWithout =
    "Text needs no template: 'weft run --raw', /v1/completions, or \"text\" in training data";

struct Form {
    std::string_view markers[3];  // special tokens that identify the vocabulary
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
    {{"[SYSTEM_PROMPT]", "[INST]", "[/INST]"},
     "{{ bos_token }}{% for message in messages %}"
     "{% if message.role == 'user' %}{{ '[INST]' + message.content + '[/INST]' }}"
     "{% elif message.role == 'assistant' %}{{ message.content + eos_token }}"
     "{% else %}{{ '[SYSTEM_PROMPT]' + message.content + '[/SYSTEM_PROMPT]' }}{% endif %}"
     "{% endfor %}"},
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

// GGUF may spell a token differently than templates do: SPM writes U+2581 for a space.
std::string TextOf(const tokenizer::Tokenizer& tokenizer, int32_t id) {
    return std::string(tokenizer.Piece(id));
}

// Renders probe conversations to see which messages reach the prompt.
class Prober {
  public:
    using Takes = ChatTemplate::Takes;

    Prober(ChatTemplate& probed, const std::vector<std::pair<std::string, std::string>>& tokens,
           bool tools)
        : probed_(probed), tokens_(tokens), tools_(tools) {}

    // Whether the prompt depends on the text of a message of `role`; parts: on the text of each of
    // its two parts. Comparing prompts works although templates may change the text (upper case,
    // first ten letters), require a system message, or show only one of several messages.
    bool Shows(std::string_view role, const Takes& takes, bool parts = false) {
        probed_.SetTakes(takes);
        for (const bool system : {false, true}) {
            for (const bool answered : {false, true}) {
                const auto render = [&](std::string_view first, std::string_view second) {
                    return Render({role, parts, system, answered}, first, second);
                };
                const auto text = render("ab", "cd");
                if (!text) continue;
                renders_ = true;
                const auto other = render("xy", "cd");
                if (!other || *other == *text) continue;
                if (!parts) return true;
                const auto third = render("ab", "zw");
                if (third && *third != *text && *third != *other) return true;
            }
        }
        return false;
    }
    // Whether any probe could be rendered.
    bool renders() const { return renders_; }

  private:
    struct Shape {
        std::string_view role;
        bool parts, system, answered;
    };

    std::optional<std::string> Render(const Shape& shape, std::string_view first,
                                      std::string_view second) const {
        ChatInput input;
        const auto add = [&](std::string_view role) {
            OrderedJson message{{"role", role}, {"content", "hm"}};
            if (role == shape.role) {
                message["content"] = std::string(first) + std::string(second);
                if (shape.parts) message[kPartsMember] = {first.size(), second.size()};
            }
            if (role == "tool") message["tool_call_id"] = message["name"] = "f";
            input.messages.push_back(std::move(message));
        };
        if (shape.system || shape.role == "system") add("system");
        add("user");
        if (shape.role == "tool") AddCall(input.messages);
        if (shape.role == "tool") add("tool");
        if (shape.answered || shape.role == "assistant") add("assistant");
        if (shape.answered || shape.role == "assistant") {
            input.messages.push_back({{"role", "user"}, {"content", "hm"}});
        }
        if (tools_ || shape.role == "tool") input.tools = OneTool();
        input.now_s = 1;
        auto text = probed_.Render(input, tokens_, kProbeLimits);
        if (!text.ok()) return {};
        return text->bytes();
    }
    static void AddCall(OrderedJson& messages) {
        const OrderedJson function{{"name", "f"}, {"arguments", OrderedJson::object()}};
        OrderedJson call{{"type", "function"}, {"id", "f"}, {"function", function}};
        messages.push_back({{"role", "assistant"}, {"content", ""}});
        messages.back()["tool_calls"] = OrderedJson::array({std::move(call)});
    }
    static OrderedJson OneTool() {
        const OrderedJson none{{"type", "object"}, {"properties", OrderedJson::object()}};
        const OrderedJson function{
            {"name", "f"}, {"description", "A function."}, {"parameters", none}};
        return OrderedJson::array({{{"type", "function"}, {"function", function}}});
    }

    ChatTemplate& probed_;
    const std::vector<std::pair<std::string, std::string>>& tokens_;
    bool tools_;
    bool renders_ = false;
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
            return MakeError(
                ErrorCode::kUnsupported,
                "chat: the model has no chat template, and its vocabulary lacks the markers of "
                "ChatML, Llama 3 and Mistral. {}",
                kWithout);
        }
        chat_template = form->text;
    }
    auto parsed = ChatTemplate::Parse(chat_template);
    if (!parsed.ok()) {
        return Error{parsed.error().code, parsed.error().message + ". " + kWithout};
    }
    Chat chat(std::move(parsed).value(), tokenizer);
    WEFT_TRY(chat.Fit(chat.plain_, false));
    return chat;
}

Result<Chat> Chat::MakeUnfitted(std::string_view chat_template,
                                const tokenizer::Tokenizer& tokenizer) {
    WEFT_ASSIGN(ChatTemplate parsed, ChatTemplate::Parse(chat_template));
    return Chat(std::move(parsed), tokenizer);
}

// Detects how the template accepts content parts and absent tools. (Some llama.cpp templates test
// whether `tools` is defined, and then iterate over it.) A template that rejects every probe is
// left unchanged: its own error is more useful.
Status Chat::Fit(ChatTemplate& to_fit, bool tools) const {
    Prober prober(to_fit, tokens_, tools);
    for (const bool left_out : {false, true}) {
        ChatTemplate::Takes takes{.tools_left_out = left_out};
        if (!prober.Shows("user", takes)) continue;
        const auto takes_parts = [&](std::string_view role) {
            ChatTemplate::Takes with = takes;
            with.user_parts = with.assistant_parts = with.system_parts = with.tool_parts = true;
            return prober.Shows(role, with, true);
        };
        takes.user_parts = takes_parts("user");
        takes.assistant_parts = takes_parts("assistant");
        takes.system_parts = takes_parts("system");
        takes.tool_parts = takes_parts("tool");
        to_fit.SetTakes(takes);
        return {};
    }
    to_fit.SetTakes({});
    if (!prober.renders()) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "chat: the chat template omits the user's text, so the model would not see "
                     "it. Use another template. {}",
                     kWithout);
}

Result<Chat> Chat::Load(const model_files::Metadata& meta, const tokenizer::Tokenizer& tokenizer) {
    WEFT_ASSIGN(const std::string plain, meta.StringOr("tokenizer.chat_template", ""));
    WEFT_ASSIGN(const std::string tools, meta.StringOr("tokenizer.chat_template.tool_use", ""));
    WEFT_ASSIGN(Chat chat, Make(plain, tokenizer));
    if (tools.empty()) return chat;
    if (const Status added = chat.AddToolTemplate(tools); !added.ok()) {
        chat.tools_status_ =
            MakeError(added.error().code,
                      "the template for tools (tokenizer.chat_template.tool_use in a GGUF file; in "
                      "a folder additional_chat_templates/tool_use.jinja, or 'tool_use' of "
                      "chat_template in tokenizer_config.json): {}",
                      added.error().message);
    }
    return chat;
}

Status Chat::AddToolTemplate(std::string_view source) {
    WEFT_ASSIGN(with_tools_, ChatTemplate::Parse(source));
    return Fit(*with_tools_, true);
}

Result<Text> Chat::Render(const ChatInput& input, const RenderLimits& limits) const {
    const bool tools = input.tools.is_array() && !input.tools.empty();
    if (tools) WEFT_TRY(tools_status_);
    const ChatTemplate& shown = tools && with_tools_ ? *with_tools_ : plain_;
    auto text = shown.Render(input, tokens_, limits);
    const auto parts = [](const OrderedJson& message) { return message.contains(kPartsMember); };
    if (text.ok() || std::ranges::none_of(input.messages, parts)) return text;
    // The template does not accept parts for these messages.
    ChatInput joined = input;
    for (OrderedJson& message : joined.messages) {
        if (message.is_object()) message.erase(kPartsMember);
    }
    auto again = shown.Render(joined, tokens_, limits);
    return again.ok() ? std::move(again) : std::move(text);
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
