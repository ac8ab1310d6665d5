// Measures a model: its logits, its perplexity on a text, and the time of its steps. All rows use
// the job's first adapter, if there is one. An error ends the job. Thread: as StepRunner.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/rank/runner.h"

namespace weft::engine {

// Logits after each token, [tokens.size(), vocab], or, without `all`, only after the last token,
// [1, vocab]. Errors: kUsage: no tokens, more tokens than the context holds, or tokens that the
// model does not have.
Result<std::vector<float>> Logits(StepRunner& runner, std::span<const int32_t> tokens, bool all);

struct Perplexity {
    double value = 0;    // exp of the mean negative log-likelihood
    double error = 0;    // one standard error of `value`
    int64_t tokens = 0;  // number of scored tokens
    int64_t chunks = 0;
};
// Perplexity as llama.cpp defines it: cuts the text into chunks of `ctx` tokens (each begins with
// BOS if the model has one) and scores the second half of each chunk. Errors: kUsage: the text is
// too short.
using PerplexityProgress = std::function<void(int64_t chunk, int64_t chunks, double value)>;
Result<Perplexity> ScoreText(StepRunner& runner, std::string_view text, int64_t ctx,
                             const PerplexityProgress& progress);

// TimePrompts: seconds of prefill, for `count` prompt tokens (random ids) of each of `seqs`
// sequences and an empty cache. TimeTokens: seconds of `count` decode steps with one token of each
// of `seqs` sequences, from position `depth` on. The KV cache must be large enough for all tokens.
Result<double> TimePrompts(StepRunner& runner, int64_t seqs, int64_t count);
Result<double> TimeTokens(StepRunner& runner, int64_t seqs, int64_t count, int64_t depth);

// Current reports of all ranks, by rank. Call it between two measurements.
Result<std::vector<RankReport>> SurveyRanks(StepRunner& runner);

}  // namespace weft::engine
