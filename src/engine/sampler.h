// Sampling: from logits to the next token.
//
// Order, as in llama.cpp: bias, forbidden tokens, penalties, top-k, top-p, min-p, temperature,
// draw. temperature <= 0 is greedy: the largest logit, the lowest id among equals.
// Sources: top-k (Fan et al. 2018), nucleus sampling (Holtzman et al. 2020), min-p (Nguyen et al.
// 2024), repetition penalty (Keskar et al. 2019); Judge: speculative sampling (Leviathan et al.
// 2023, "Fast Inference from Transformers via Speculative Decoding"; Chen et al. 2023).
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "backend/step.h"
#include "backend/top.h"
#include "base/result.h"
#include "engine/row_ask.h"

namespace weft::engine {

class LogitsRow;

struct SamplerOptions {
    float temperature = 0;
    int top_k = 0;                // 0: all
    float top_p = 1;              // smallest set with this probability
    float min_p = 0;              // at least this share of the best token's probability
    float repeat_penalty = 1;     // divides positive logits (multiplies negative) of recent tokens
    int repeat_last = 64;         // number of recent tokens
    float presence_penalty = 0;   // subtracted from the logit of each generated token
    float frequency_penalty = 0;  // the same, for each occurrence
    std::vector<std::pair<int32_t, float>> bias{};  // added to these tokens' logits
    uint64_t seed = 0;
};

// kUsage: names an option that is out of range or not a number.
Status CheckSampler(const SamplerOptions& options);

// The tokens that may be drawn, with their probabilities, whose sum is 1. Unsorted.
struct Distribution {
    struct Entry {
        int32_t id;
        double chance;
    };
    std::vector<Entry> entries;
};

// The verdict on a drafted token: the token itself, or its replacement.
struct Verdict {
    bool accepted = false;
    int32_t token = 0;
};

// The text so far, and the tokens that may come next.
struct SampleContext {
    std::span<const int32_t> history;     // the tokens so far, prompt included
    size_t prompt = 0;                    // number of prompt tokens in it
    std::span<const uint32_t> allowed{};  // a bit per token; empty: all are allowed

    SampleContext() = default;
    SampleContext(std::span<const int32_t> tokens)  // NOLINT: implicit on purpose
        : history(tokens) {}
    SampleContext(const std::vector<int32_t>& tokens)  // NOLINT: implicit on purpose
        : history(tokens) {}
};

// Deterministic: the same options, seed and logits give the same tokens on every machine with the
// same libm. Cost: greedy, or top-k alone, leaves the logits on the device and reads 1 or k of
// them; other options make one pass over all. Never sorts the whole vocabulary. Allocates only
// while its buffers grow. Thread: one caller.
class Sampler {
  public:
    using Candidate = backend::Candidate;

    // `options` must have passed CheckSampler.
    explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}
    // From now on draws the same tokens as `other`, with the same random numbers.
    void Become(const Sampler& other) {
        options_ = other.options_;
        random_ = other.random_;
    }
    // -inf forbids a token. kCorrupt: a logit is NaN or +inf, or all are -inf.
    Result<int32_t> Sample(const LogitsRow& logits, const SampleContext& context);
    // The distribution of Sample. Greedy: one token. Errors: as Sample.
    Status Distribute(const LogitsRow& logits, const SampleContext& context, Distribution& out);
    // Adds to `wanted` the part of a row's first `wanted.columns` logits that Sample and Distribute
    // read. masked: whether the context limits the tokens.
    void Want(bool masked, backend::WantedRows& wanted) const;
    // The smallest ask that suffices for Sample, for a row of `columns` logits on another stage.
    // masked: as above. ahead: rows of the same step whose tokens are drawn before this one.
    RowAsk Ask(bool masked, int64_t columns, int64_t ahead) const;
    // On the last pipeline stage: draws the token for an ask with a chain. Returns the token (-1: a
    // logit is not finite) with the row's largest logit.
    Candidate DrawToken(std::span<const float> logits, const RowChain& chain);
    int32_t DrawFrom(const Distribution& distribution);
    // Speculative sampling: accepts `drafted`, which was drawn from q (where its probability is not
    // 0), with probability min(1, p / q), or else draws from max(0, p - q), normalized. The result
    // is distributed as p, for any q.
    Verdict Judge(const Distribution& p, const Distribution& q, int32_t drafted);

  private:
    bool greedy() const { return options_.temperature <= 0 || options_.top_k == 1; }
    Status Select(const LogitsRow& logits, const SampleContext& context);
    Status SelectTopK(const LogitsRow& logits, const SampleContext& context);
    bool Adjusts(bool masked) const;
    size_t TopK(size_t columns, bool masked) const;
    void Adjust(const SampleContext& context);
    void Repeat(std::span<const int32_t> history);
    void Count(std::span<const int32_t> said);
    void CutTopP(double total);
    int32_t Draw(double uniform);
    // Unnormalized probability at a temperature.
    double Share(const Candidate& candidate, double temperature) const;
    // In [0, 1), with 53 random bits: the same with every standard library.
    static double UniformOf(uint64_t random) { return static_cast<double>(random) * 0x1p-53; }
    double Uniform() { return UniformOf(random_() >> 11); }

    SamplerOptions options_;
    std::mt19937_64 random_;
    std::vector<Candidate> candidates_;  // that may be drawn: all by id, or the best k, best first
    float best_ = 0;                     // the largest logit
    std::vector<double> weights_;        // of candidates_, unnormalized
    std::vector<float> adjusted_;        // a copy of the logits
    std::vector<int32_t> recent_;
    std::vector<double> chances_;  // Judge: of q, by id; zeros between calls
    Distribution rest_;            // Judge: max(0, p - q), unnormalized
};

}  // namespace weft::engine
