// Markers of the families around reasoning and tool calls.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "chat/answer_calls.h"
#include "chat/template/value_scan.h"

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
    bool tags = false;     // arguments are between tags, unless the call begins with a bracket
    // Calls with tags whose long values are streamed (call_tags.h).
    const std::span<const TaggedCall>* tagged = nullptr;
    // An end marker counts only after one of these characters; empty: anywhere outside strings.
    std::string_view last{};
};

struct AnswerRules {
    std::string_view think_begin{}, think_end{};
    std::vector<CallForm> calls{};
    // Markers to remove. Spelled as text, they count at the end of the answer, before a call, and
    // directly behind a call; `begins` also at the beginning of the content.
    std::vector<std::string_view> dropped{};
    std::vector<std::string_view> begins{};
    // Letters around the whole content. frame_behind_thought: only if it follows reasoning.
    std::string_view frame_begin{}, frame_end{};
    bool frame_behind_thought = false;
};

// Rules of a family with markers; empty for other families.
AnswerRules RulesOf(ToolCallFormat family);

}  // namespace weft::chat
