// Prompts of completion and embedding requests: text or token ids, one or a list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

struct Prompt {
    std::vector<int32_t> tokens;
    std::string text{};  // source text; empty if the request gave ids
    bool is_text = false;
};

// Accepts a text, a list of texts, token ids, or a list of lists of token ids; at most `most`
// prompts. Special tokens in a text are not recognized. Empty result: the error is in `fields`.
// before: precedes each text.
std::vector<Prompt> ReadPrompts(Fields& fields, const Served& served, const char* name, size_t most,
                                const std::string& before = "");

// Whether `json` is a non-empty list of integers.
bool IsIds(const Json& json);
// Token ids; an invalid id becomes -1.
std::vector<int32_t> Ids(const Json& json);

}  // namespace weft::serve
