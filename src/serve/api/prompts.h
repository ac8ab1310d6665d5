// Prompts of completion and embedding requests: text or token ids, one or a list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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
// prompts. markers: the texts of special tokens become tokens, unless the request says otherwise
// ("parse_special"). head: its limit cuts texts, which `prompt` precedes; null: neither.
// kept: number of last tokens that each prompt keeps. Empty result: the error is in `fields`.
std::vector<Prompt> ReadPrompts(Fields& fields, const Served& served, const char* name, size_t most,
                                bool markers, const model_files::EmbeddingHead* head = nullptr,
                                std::optional<int64_t> kept = std::nullopt,
                                std::string_view prompt = {});

// A text's tokens, at most `most`. As transformers' tokenizers do, special tokens around the text
// stay, and the text loses its end (or its beginning). Of a long text, the tokenizer reads only
// about the part that stays.
std::vector<int32_t> CutTokens(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                               int64_t most, bool markers = false, bool cuts_begin = false);

// The beginning of a text, with its first `count` tokens at least. Of a long text, the tokenizer
// reads only about that part.
std::string_view Beginning(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                           size_t count, bool markers = false);

// Whether the texts of special tokens in a prompt become tokens: the member "parse_special".
bool ReadsMarkers(Fields& fields, bool usual = true);

// Whether a text gets the tokenizer's special tokens: the member "add_special_tokens".
bool AddsSpecial(Fields& fields);

// Whether `json` is a non-empty list of integers.
bool IsIds(const Json& json);
// Token ids; an invalid id becomes -1.
std::vector<int32_t> Ids(const Json& json);

}  // namespace weft::serve
