// Measurements of a model without an answer: its logits, its perplexity on a text, the time of its
// steps. Rows use the job's first adapter, if any. An error ends the job. Thread: as StepRunner.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/runner.h"

namespace weft::engine {

// Logits after the last token, or after each token: [tokens.size() or 1, vocab]. kUsage: no tokens,
// more than the context holds, or tokens that the model does not have.
Result<std::vector<float>> Logits(StepRunner& runner, std::span<const int32_t> tokens, bool all);

struct Perplexity {
    double value = 0;    // exp of the mean negative log-likelihood
    double error = 0;    // one standard error of `value`
    int64_t tokens = 0;  // scored
    int64_t chunks = 0;
};
// llama.cpp's definition: cuts the text into chunks of `ctx` tokens (each begins with BOS if the
// model has it) and scores the second half of each chunk. kUsage: the text is too short.
using PerplexityProgress = std::function<void(int64_t chunk, int64_t chunks, double value)>;
Result<Perplexity> ScoreText(StepRunner& runner, std::string_view text, int64_t ctx,
                             const PerplexityProgress& progress);

// TimePrompts: seconds for `count` prompt tokens (random ids) of each of `seqs` sequences, from an
// empty cache. TimeTokens: seconds for `count` steps with one token of each sequence, the first at
// position `depth`. The KV cache has room for all of them.
Result<double> TimePrompts(StepRunner& runner, int64_t seqs, int64_t count);
Result<double> TimeTokens(StepRunner& runner, int64_t seqs, int64_t count, int64_t depth);

// Current reports of all ranks, by rank. Call it between two measurements.
Result<std::vector<RankReport>> SurveyRanks(StepRunner& runner);

}  // namespace weft::engine
