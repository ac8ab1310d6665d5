#include "formats/chat.h"

#include <algorithm>

namespace weft::formats {
namespace {

// The texts around a message's role and content. Markers are special tokens, the rest is text.
struct Markers {
    std::string_view name;
    std::string_view begin;        // marker
    std::string_view after_role;   // marker; empty: none
    std::string_view before_text;  // text
    std::string_view end;          // marker
    std::string_view after_end;    // text
    bool trims;                    // takes white space off both ends of the content
};

constexpr Markers kChatMl = {"ChatML", "<|im_start|>", "", "\n", "<|im_end|>", "\n", false};
constexpr Markers kLlama3 = {
    "Llama 3", "<|start_header_id|>", "<|end_header_id|>", "\n\n", "<|eot_id|>", "", true};

const Markers& MarkersOf(ChatForm form) {
    switch (form) {
        case ChatForm::kChatMl:
            return kChatMl;
        case ChatForm::kLlama3:
            return kLlama3;
    }
    return kChatMl;
}

// Forms that Weft can tell but not write yet.
constexpr struct {
    std::string_view marker;
    std::string_view name;
} kOtherForms[] = {
    {"[INST]", "Llama 2 or Mistral"},
    {"<start_of_turn>", "Gemma"},
    {"<|user|>", "Zephyr, Phi-3 or GLM"},
    {"<\xEF\xBD\x9CUser\xEF\xBD\x9C>", "DeepSeek"},
    {"<|START_OF_TURN_TOKEN|>", "Command R"},
    {"### Instruction:", "Alpaca"},
    {"USER:", "Vicuna"},
};

struct Part {
    std::string text;
    bool special;
};

std::string_view Trim(std::string_view text) {
    const std::string_view spaces = " \t\n\r\f\v";
    const size_t begin = text.find_first_not_of(spaces);
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(spaces) - begin + 1);
}

bool IsRole(std::string_view role) {
    return !role.empty() && role.size() <= 64 && std::all_of(role.begin(), role.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    });
}

void AddHead(const Markers& markers, std::string_view role, std::string_view content,
             std::vector<Part>& parts) {
    parts.push_back({std::string(markers.begin), true});
    std::string text(role);
    if (!markers.after_role.empty()) {
        parts.push_back({text, false});
        parts.push_back({std::string(markers.after_role), true});
        text.clear();
    }
    text += markers.before_text;
    text += markers.trims ? Trim(content) : content;
    parts.push_back({std::move(text), false});
}

void AddMessage(const Markers& markers, std::string_view role, std::string_view content,
                std::vector<Part>& parts) {
    AddHead(markers, role, content, parts);
    parts.push_back({std::string(markers.end), true});
    if (!markers.after_end.empty()) parts.push_back({std::string(markers.after_end), false});
}

Result<std::vector<Part>> MakeParts(const ChatFormat& format, std::span<const ChatMessage> messages,
                                    bool add_assistant) {
    if (messages.empty()) return MakeError(ErrorCode::kUsage, "chat: there are no messages");
    const Markers& markers = MarkersOf(format.form);
    std::vector<Part> parts;
    if (!format.default_system.empty() && messages[0].role != "system") {
        AddMessage(markers, "system", format.default_system, parts);
    }
    for (const ChatMessage& message : messages) {
        if (!IsRole(message.role)) {
            return MakeError(ErrorCode::kUsage,
                             "chat: '{}' is not a role; expected letters, such as system, user, "
                             "assistant or tool",
                             message.role.substr(0, 64));
        }
        AddMessage(markers, message.role, message.content, parts);
    }
    if (add_assistant) AddHead(markers, "assistant", "", parts);
    return parts;
}

// The system message that a ChatML template puts in by itself: literal text between the markers.
std::string DefaultSystem(std::string_view chat_template) {
    const std::string_view end = "<|im_end|>";
    // In a Jinja string a line end is itself or a backslash and an n.
    for (const std::string_view begin : {"<|im_start|>system\n", "<|im_start|>system\\n"}) {
        size_t at = chat_template.find(begin);
        for (; at != chat_template.npos; at = chat_template.find(begin, at + 1)) {
            const std::string_view rest = chat_template.substr(at + begin.size());
            const std::string_view text = rest.substr(0, rest.find(end));
            const bool literal = text.size() < rest.size() && !text.empty() &&
                                 text.find_first_of("'\"{}\\") == text.npos;
            if (literal) return std::string(text);
        }
    }
    return {};
}

bool HasMarkers(const Markers& markers, const Tokenizer& tokenizer) {
    const auto known = [&](std::string_view marker) {
        return marker.empty() || tokenizer.IsSpecial(tokenizer.Find(marker)) ||
               tokenizer.Type(tokenizer.Find(marker)) == TokenType::kUserDefined;
    };
    return known(markers.begin) && known(markers.after_role) && known(markers.end);
}

std::string_view OtherForm(std::string_view chat_template) {
    for (const auto& [marker, name] : kOtherForms) {
        if (chat_template.find(marker) != chat_template.npos) return name;
    }
    return chat_template.empty() ? "none (the file has no tokenizer.chat_template)" : "unknown";
}

}  // namespace

Result<ChatFormat> DetectChat(std::string_view chat_template, const Tokenizer& tokenizer) {
    for (const ChatForm form : {ChatForm::kChatMl, ChatForm::kLlama3}) {
        const Markers& markers = MarkersOf(form);
        const bool named = chat_template.find(markers.begin) != chat_template.npos;
        if (!named && !chat_template.empty()) continue;
        if (HasMarkers(markers, tokenizer)) return ChatFormat{form, DefaultSystem(chat_template)};
        if (!named) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "chat: the model's template is {}, but its vocabulary lacks the tokens "
                         "{}{}{}",
                         markers.name, markers.begin, markers.after_role, markers.end);
    }
    return MakeError(ErrorCode::kUnsupported,
                     "chat: the model's form is {}; supported: ChatML, Llama 3. Without --chat "
                     "the prompt is taken as it is",
                     OtherForm(chat_template));
}

Result<ChatFormat> DetectChat(const Metadata& meta, const Tokenizer& tokenizer) {
    WEFT_ASSIGN(const std::string text, meta.StringOr("tokenizer.chat_template", ""));
    return DetectChat(text, tokenizer);
}

Result<std::string> FormatChat(const ChatFormat& format, std::span<const ChatMessage> messages,
                               bool add_assistant) {
    WEFT_ASSIGN(const std::vector<Part> parts, MakeParts(format, messages, add_assistant));
    std::string text;
    for (const Part& part : parts) text += part.text;
    return text;
}

Result<std::vector<int32_t>> EncodeChat(const Tokenizer& tokenizer, const ChatFormat& format,
                                        std::span<const ChatMessage> messages, bool add_assistant) {
    WEFT_ASSIGN(const std::vector<Part> parts, MakeParts(format, messages, add_assistant));
    std::vector<int32_t> ids;
    if (tokenizer.data().add_bos) ids.push_back(tokenizer.data().bos);
    for (const Part& part : parts) {
        const auto more =
            tokenizer.Encode(part.text, {.add_special = false, .parse_special = part.special});
        ids.insert(ids.end(), more.begin(), more.end());
    }
    return ids;
}

}  // namespace weft::formats
