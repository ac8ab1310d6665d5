// Texts and token ids that a request brings: one, or a list of them, as completions and embeddings
// take them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

struct Prompt {
    std::vector<int32_t> tokens;
    std::string text{};  // what they were made of; empty where ids came
    bool is_text = false;
};

// A text, a list of texts, token ids, or a list of lists of token ids: at most `most` of them. No
// word of a text becomes a marker. Empty: the error is left in `fields`.
std::vector<Prompt> ReadPrompts(Fields& fields, const Served& served, const char* name,
                                size_t most);

// Whether it is a list of integers, with at least one.
bool IsIds(const Json& json);
// What is no id becomes -1.
std::vector<int32_t> Ids(const Json& json);

}  // namespace weft::serve
