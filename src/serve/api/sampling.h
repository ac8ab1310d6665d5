// The members of a request that say how tokens are chosen: the same in all of OpenAI's endpoints,
// with the names that vLLM and llama.cpp gave to what OpenAI lacks.
#pragma once

#include "engine/engine.h"
#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

inline constexpr int64_t kMostChoices = 64;  // n times prompts
inline constexpr size_t kMostStops = 16;
inline constexpr int64_t kMostLogprobs = 20;

// What a request leaves out is as `served.sampling` has it.
// temperature, top_p, top_k, min_p, presence_penalty, frequency_penalty, repetition_penalty, seed,
// logit_bias, stop, ignore_eos, priority. Not: how many tokens, n, log-probabilities. Errors are
// left in `fields`.
void ReadSampling(Fields& fields, const Served& served, engine::Request& request);
std::vector<std::string> ReadStops(Fields& fields, const char* name);

// A float32 as the decimal number that it stands for: 0.7, not 0.699999988.
double Decimal(float value);

// How many tokens an answer may have: at least `least`; -1 (as in llama.cpp): to the end of the
// context.
int64_t ReadLength(Fields& fields, const char* name, int64_t otherwise, int64_t least = 1);

// vLLM's prompt_logprobs: how many of the likeliest tokens are reported beside each token of the
// prompt; -1: nothing is. Fails for a stream.
int ReadPromptLogprobs(Fields& fields, bool stream);
// An error if the choices ask for more log-probabilities of prompts than an answer may hold.
std::optional<ApiError> CheckPromptLogprobs(const std::vector<ChoicePlan>& choices);

// Texts whose tokens are counted or told, not computed with, may be longer than the context: a
// second's work.
inline constexpr size_t kMostPlainBytes = size_t{4} << 20;

// Before a text is made into tokens: whether it can fit the context, however it is cut. param: what
// it came as.
std::optional<ApiError> CheckPromptBytes(const Served& served, size_t bytes, const char* param);

// Fails where "model" names another one. A request without it is taken.
std::optional<ApiError> CheckModel(Fields& fields, const Served& served);
// Of a request whose model is known.
int32_t ReadAdapter(Fields& fields, const Served& served);

// The samplers of `n` choices of one request have different seeds, made from the first's.
void Reseed(engine::Request& request, int choice);

}  // namespace weft::serve
