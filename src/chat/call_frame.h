// The text around a call's function name and arguments, for calls that the API forces.
// FindCallFrame renders a probe call with the model's template and extracts the text around the
// probe's words. If the family's AnswerParser cannot parse a call in this frame, the default frame
// is used: <tool_call>{"name": ..., "arguments": {...}}</tool_call>.
//
// Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "chat/answer.h"
#include "chat/chat.h"
#include "chat/template/template_capabilities.h"
#include "chat/tool_types.h"

namespace weft::chat {

struct CallFrame {
    enum class Arguments {
        kJson,    // a JSON object
        kTexts,   // key-value pairs; strings are bare, other values are JSON
        kQuoted,  // key-value pairs; strings are enclosed in `quote`
        kValues,  // key-value pairs; all values are JSON
    };
    ToolCallFormat family = ToolCallFormat::kQwen;  // whose parser parses the call
    std::string before = "<tool_call>\n{\"name\": \"";
    std::string middle = "\", \"arguments\": ";  // between the name and the arguments
    std::string after = "}\n</tool_call>";
    Arguments arguments = Arguments::kJson;
    // A pair is before_key KEY before_value VALUE behind_value; `between` separates two pairs.
    std::string before_key{}, before_value{}, behind_value{}, between{};
    std::string quote{};

    bool operator==(const CallFrame&) const = default;
};

// The frame for conversations with tools, which are converted to `form`. `family`: the format of
// calls that the API does not force.
CallFrame FindCallFrame(const Chat& chat, const TemplateCapabilities& form, ToolCallFormat family);

// Parses the text so far of an unfinished call in `frame`. Returns the function's name and the
// known beginning of the arguments' JSON (complete pairs only). nullopt: the name is not complete.
std::optional<CallPart> BegunCall(const CallFrame& frame, std::string_view text,
                                  const ToolTypes& types);

}  // namespace weft::chat
