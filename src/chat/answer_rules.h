// The markers that families of models put around what they think and call.
#pragma once

#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "chat/answer_calls.h"
#include "chat/value_scan.h"

namespace weft::chat {

struct CallForm {
    std::string_view begin{};
    // Empty: the call ends where its JSON does, or with the next begin.
    std::string_view end{};
    CallReader read = nullptr;
    ValueScan::Style style = ValueScan::Style::kJson;
    size_t kept = 0;       // bytes at the end of `begin` that belong to the call's text
    bool repeats = false;  // without an end: more JSON behind it is more calls
    bool streams = false;  // its JSON can be given piece by piece (call_stream.h)
};

struct AnswerRules {
    std::string_view think_begin{}, think_end{};
    std::vector<CallForm> calls{};
    std::vector<std::string_view> dropped{};  // markers that say nothing more
};

// Of families with markers; of the others nothing.
AnswerRules RulesOf(AnswerFamily family);

}  // namespace weft::chat
