// Markers of the families around reasoning and tool calls.
#pragma once

#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "chat/answer_calls.h"
#include "chat/value_scan.h"

namespace weft::chat {

struct CallForm {
    std::string_view begin{};
    // Empty: the call ends with its JSON, or at the next `begin`.
    std::string_view end{};
    CallReader read = nullptr;
    ValueScan::Style style = ValueScan::Style::kJson;
    size_t kept = 0;       // bytes at the end of `begin` that are part of the call's text
    bool repeats = false;  // without `end`: JSON after the call is another call
    bool streams = false;  // its JSON can be streamed (call_stream.h)
};

struct AnswerRules {
    std::string_view think_begin{}, think_end{};
    std::vector<CallForm> calls{};
    std::vector<std::string_view> dropped{};  // markers to remove from the text
};

// Rules of a family with markers; empty for other families.
AnswerRules RulesOf(ToolCallFormat family);

}  // namespace weft::chat
