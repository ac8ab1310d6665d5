// Renders a chat template for a conversation, for tests of templates.
#pragma once

#include <string>
#include <string_view>

#include "chat/template/chat_template.h"

namespace weft::chat {

inline ChatInput OneUser(const std::string& content) {
    ChatInput input;
    input.messages.push_back({{"role", "user"}, {"content", content}});
    return input;
}

inline Result<Text> RenderText(std::string_view source, const ChatInput& input = OneUser("hi"),
                               const RenderLimits& limits = {}) {
    WEFT_ASSIGN(const ChatTemplate parsed, ChatTemplate::Parse(source));
    return parsed.Render(input, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, limits);
}

// The rendered text, or the error's message.
inline std::string Rendered(std::string_view source, const ChatInput& input = OneUser("hi")) {
    const auto text = RenderText(source, input);
    return text.ok() ? text->bytes() : "error: " + text.error().message;
}

}  // namespace weft::chat
