// What is measured of a model without an answer: its logits, how well it predicts a text, how long
// its steps take. Rows use the job's first adapter, where it has any. After an error the job is
// over. Thread: as StepRunner.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/runner.h"

namespace weft::engine {

// After the last token, or after each of them: [tokens.size() or 1, vocab]. kUsage: there are no
// tokens, more than the context holds, or some that the model does not have.
Result<std::vector<float>> Logits(StepRunner& runner, std::span<const int32_t> tokens, bool all);

struct Perplexity {
    double value = 0;    // exp of the mean negative log-likelihood
    double error = 0;    // one standard error of it
    int64_t tokens = 0;  // scored
    int64_t chunks = 0;
};
// llama.cpp's definition: the text in chunks of `ctx` tokens (each beginning with BOS where the
// model has it), the second half of each chunk scored. kUsage: the text is too short for that.
using PerplexityProgress = std::function<void(int64_t chunk, int64_t chunks, double value)>;
Result<Perplexity> ScoreText(StepRunner& runner, std::string_view text, int64_t ctx,
                             const PerplexityProgress& progress);

// Runs `count` prompt tokens (random ids) of each of `seqs` sequences from an empty cache, or
// `count` steps with a token of each, the first at position `depth`; the seconds they took. The KV
// cache has room for all of them.
Result<double> TimePrompts(StepRunner& runner, int64_t seqs, int64_t count);
Result<double> TimeTokens(StepRunner& runner, int64_t seqs, int64_t count, int64_t depth);

// Between two of them: the reports of all ranks, by rank, as they are now.
Result<std::vector<RankReport>> SurveyRanks(StepRunner& runner);

}  // namespace weft::engine
