// Log-probabilities and usage, as OpenAI's endpoints have them.
#pragma once

#include <span>
#include <string_view>

#include "serve/api/dialect.h"
#include "tokenizer/tokenizer.h"

namespace weft::serve {

// {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}]}
Json ChatLogprobs(const tokenizer::Tokenizer& tokenizer, std::span<const engine::SaidToken> tokens);
// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; null for a prompt's first. begin:
// the offset of the first token, in characters of the answer; grows to that after the last. Below 0
// are tokens that the text does not show.
Json TextLogprobs(const tokenizer::Tokenizer& tokenizer, std::span<const engine::SaidToken> tokens,
                  int64_t& begin);
// Characters of what the tokens stand for.
int64_t Characters(const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> tokens);
int64_t Characters(std::string_view text);
// As vLLM has it: null, then for each token {ID: {"logprob", "rank", "decoded_token"}}, its own and
// those of the likeliest. prompt: as Choice::prompt.
Json PromptLogprobs(const tokenizer::Tokenizer& tokenizer,
                    std::span<const engine::SaidToken> prompt);
// {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}
Json UsageJson(const Usage& usage);

}  // namespace weft::serve
