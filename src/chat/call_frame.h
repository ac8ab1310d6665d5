// How a call is written around its function's name and its arguments, for calls that the API
// demands. No template says so: FindCallFrame renders a made-up call and looks what stands around
// what was made up. The frame is one that the family's AnswerParser reads back, or the one that
// most models know, <tool_call>{"name": ..., "arguments": {...}}</tool_call>.
//
// Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "chat/answer.h"
#include "chat/chat.h"
#include "chat/tool_form.h"
#include "chat/tool_types.h"

namespace weft::chat {

struct CallFrame {
    enum class Arguments {
        kJson,    // an object of JSON
        kTexts,   // pairs; values that are texts are bare, others are JSON
        kQuoted,  // pairs; texts stand between two `quote`
        kValues,  // pairs; all values are JSON
    };
    AnswerFamily family = AnswerFamily::kQwen;  // whose parser reads it
    std::string before = "<tool_call>\n{\"name\": \"";
    std::string middle = "\", \"arguments\": ";  // between the name and the arguments
    std::string after = "}\n</tool_call>";
    Arguments arguments = Arguments::kJson;
    // Pairs: each is before_key KEY before_value VALUE behind_value; `between` stands between two.
    std::string before_key{}, before_value{}, behind_value{}, between{};
    std::string quote{};

    bool operator==(const CallFrame&) const = default;
};

// The frame of conversations that have tools, which take `form`. `family`: whose form unasked calls
// have there.
CallFrame FindCallFrame(const Chat& chat, const ToolForm& form, AnswerFamily family);

// A call in that frame which was cut off, `text` being all that came of it: its name, and the begin
// of its arguments' JSON as far as it is known (of pairs those that are whole). None: not even the
// name is whole.
std::optional<CallPart> BegunCall(const CallFrame& frame, std::string_view text,
                                  const ToolTypes& types);

}  // namespace weft::chat
