// From a conversation in OpenAI's form to one that a model's chat template takes. Serving, training
// and `weft run` call PrepareConversation, so a model is asked in the very text that it learned.
//
// Sizes: messages and tools as the caller has bounded them. Thread: any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "chat/chat.h"
#include "chat/tool_form.h"

namespace weft::chat {

// The forms that a template takes in conversations without and with tools.
struct ConversationForms {
    ToolForm plain, tools;

    const ToolForm& Of(const ChatInput& input) const {
        return input.tools.is_array() && !input.tools.empty() ? tools : plain;
    }
};
// Renders made-up conversations (tool_form.h): once a model.
ConversationForms FindForms(const Chat& chat);

// A fault in a message. `code` is a word for programs: missing, invalid_type,
// unsupported_content or invalid_value.
struct MessageFault {
    size_t at = 0;        // the message's place in the list, from 0
    std::string member;   // "content"; empty: the message as a whole
    std::string message;  // a sentence that names the member
    const char* code = "invalid_value";
};

// Makes the conversation such as the template takes it:
//  - members that are null are absent; the role `developer` is `system`, `function` is `tool`;
//  - a content is one string; kPartsMember keeps the parts that it was given in, for templates that
//    take parts. An assistant's refusal is its text; an assistant or a tool may lack a content;
//  - calls have the form {"type", "function": {"name", "arguments"}}, whether they came so, without
//    "function" around them, or as one "function_call"; arguments that are texts of JSON become
//    JSON, so that no template encodes them twice;
//  - then FitConversation. Whatever has this form already stays as it is.
[[nodiscard]] std::optional<MessageFault> PrepareConversation(const ConversationForms& forms,
                                                              ChatInput& input);

// Puts {"type": "function", "function": ...} around each function of `list` that comes without, as
// in OpenAI's older `functions`.
void WrapFunctions(OrderedJson& list);

// The text of a content, and the sizes of its parts in bytes where it is a list. refusals: the
// message is an assistant's, so parts may be refusals. The fault has neither place nor member;
// `name` is what its message calls the content.
[[nodiscard]] std::optional<MessageFault> ReadContentText(const OrderedJson& content, bool refusals,
                                                          const std::string& name,
                                                          std::string& text,
                                                          std::vector<size_t>* sizes = nullptr);

}  // namespace weft::chat
