// Sampling members of a request. The members are the same in all of OpenAI's endpoints, plus names
// of vLLM and llama.cpp for options that OpenAI lacks.
#pragma once

#include "engine/engine.h"
#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/members.h"
#include "serve/api/served.h"

namespace weft::serve {

inline constexpr int64_t kMostChoices = 64;  // n times the number of prompts
inline constexpr size_t kMostStops = 16;
inline constexpr int64_t kMostLogprobs = 20;

// Reads the members that choose tokens, and stop, ignore_eos and the members of ReadCaching. Absent
// members get the values of `served.sampling`. Does not read the length, n or log-probabilities.
// Reports errors in `fields`.
void ReadSampling(Fields& fields, const Served& served, engine::Request& request);
// Parts of ReadSampling: typical_p, top_n_sigma, xtc_*; dry_*; and vLLM's members that forbid
// tokens or end the answer (min_tokens, stop_token_ids, allowed_token_ids, bad_words,
// include_stop_str_in_output), and transformers' suppress_tokens.
void ReadRareCuts(Fields& fields, const engine::SamplerOptions& usual,
                  engine::SamplerOptions& sampler);
void ReadDry(Fields& fields, const Served& served, engine::DryOptions& dry);
void ReadTokenRules(Fields& fields, const Served& served, engine::Request& request);

// Reads cache_prompt, and vLLM's cache_salt: only requests with the same salt share a cache.
void ReadCaching(Fields& fields, engine::Request& request);

// The last reader of a request: compares min_tokens with the length, and checks the members that no
// reader took.
std::optional<ApiError> FinishRequest(Fields& fields, const Served& served,
                                      const engine::Request& request, LeftMembers& left);

// vLLM's truncate_prompt_tokens: number of last tokens that the prompt keeps (Request::max_tokens
// counts for -1: as many as fit); nullopt: all.
std::optional<int64_t> ReadKeptTokens(Fields& fields, const Served& served, int64_t max_tokens);
// Keeps the last `most` tokens. begin: the token that the tokenizer puts in front of a text; if the
// prompt begins with it, it stays. -1: none.
void KeepLast(std::vector<int32_t>& tokens, int64_t most, int32_t begin);
std::vector<std::string> ReadStops(Fields& fields, const char* name);

// A float32 as its shortest decimal number: 0.7, not 0.699999988.
double Decimal(float value);

// Maximum length of an answer in tokens: at least `least`; -1 (as in llama.cpp): up to the end of
// the context.
int64_t ReadLength(Fields& fields, const char* name, int64_t otherwise, int64_t least = 1);

// Reads vLLM's prompt_logprobs: the number of most likely tokens reported for each prompt token;
// -1: no report. Fails for a stream.
int ReadPromptLogprobs(Fields& fields, bool stream);
// Returns an error if the choices request more prompt log-probabilities than an answer may hold.
std::optional<ApiError> CheckPromptLogprobs(const std::vector<ChoicePlan>& choices);

// Limit of a text that is only tokenized, not run. It may exceed the context; tokenizing it takes
// about a second.
inline constexpr size_t kMostPlainBytes = size_t{4} << 20;

// Before tokenizing: returns an error if a text of `bytes` bytes cannot fit the context under any
// tokenization. param: the text's field.
std::optional<ApiError> CheckPromptBytes(const Served& served, size_t bytes, const char* param);

// Fails if "model" names another model. A request without "model" is accepted.
std::optional<ApiError> CheckModel(Fields& fields, const Served& served);
// The adapter of a request; its model has been checked.
int32_t ReadAdapter(Fields& fields, const Served& served);

// Before `n` copies of a choice are made: returns an error if the engine refuses it, or if the
// copies' rules take too much memory.
std::optional<ApiError> CheckCopies(const Served& served, const ChoicePlan& choice, int64_t n,
                                    const std::string& prompt_name);

// Gives each of a request's choices a distinct seed, derived from the first choice's seed.
void Reseed(engine::Request& request, int choice);

}  // namespace weft::serve
