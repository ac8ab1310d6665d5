// Log-probabilities and usage in OpenAI's formats.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "serve/api/dialect.h"
#include "tokenizer/tokenizer.h"

namespace weft::serve {

// How tokens are named: by text, or as "token_id:5" (vLLM's return_tokens_as_token_ids).
enum class TokenNames { kTexts, kIds };
TokenNames ReadTokenNames(Fields& fields);

// {"token", "logprob", "bytes", "top_logprobs": [...]}
Json TokenJson(const tokenizer::Tokenizer& tokenizer, const engine::GeneratedToken& token,
               TokenNames names = TokenNames::kTexts);
// ChatLogprobs, TextLogprobs and PromptLogprobs return JSON text, because a tree of values has ten
// times its size.
// {"content": [TokenJson, ...], "refusal": null}
std::string ChatLogprobs(const tokenizer::Tokenizer& tokenizer,
                         std::span<const engine::GeneratedToken> tokens,
                         TokenNames names = TokenNames::kTexts);
// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; null for a prompt's first token.
// A token that is not valid UTF-8 alone is named by its bytes, "bytes:\xe2\x80", as in OpenAI's
// API. begin: in: the first token's offset, in characters of the answer; out: the offset after the
// last. Tokens at negative offsets are not part of the shown text.
std::string TextLogprobs(const tokenizer::Tokenizer& tokenizer,
                         std::span<const engine::GeneratedToken> tokens, int64_t& begin,
                         TokenNames names = TokenNames::kTexts);
// Number of characters that the tokens decode to.
int64_t Characters(const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> tokens);
int64_t Characters(std::string_view text);
// vLLM's format: null, then for each token {ID: {"logprob", "rank", "decoded_token"}} with the
// prompt's token and the most likely ones. prompt: as Choice::prompt.
std::string PromptLogprobs(const tokenizer::Tokenizer& tokenizer,
                           std::span<const engine::GeneratedToken> prompt);
// {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}
Json UsageJson(const Usage& usage);

}  // namespace weft::serve
