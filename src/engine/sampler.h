// Sampling: from logits to the next token.
//
// Order, as llama.cpp has it: bias, what is forbidden, penalties, top-k, top-p, min-p, temperature,
// draw. temperature <= 0 is greedy: the largest logit, the lowest id among equals. Sources: top-k
// (Fan et al. 2018), nucleus sampling (Holtzman et al. 2020), min-p (Nguyen et al. 2024),
// repetition penalty (Keskar et al. 2019); Judge: speculative sampling (Leviathan et al. 2023,
// "Fast Inference from Transformers via Speculative Decoding"; Chen et al. 2023).
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
    float top_p = 1;              // smallest set of this probability
    float min_p = 0;              // at least this share of the best token's probability
    float repeat_penalty = 1;     // divides positive logits (multiplies negative) of recent tokens
    int repeat_last = 64;         // how many tokens are recent
    float presence_penalty = 0;   // taken from the logit of each token said so far
    float frequency_penalty = 0;  // the same, for each time that it was said
    std::vector<std::pair<int32_t, float>> bias{};  // added to these tokens' logits
    uint64_t seed = 0;
};

// kUsage, naming the option, for values out of range or not a number.
Status CheckSampler(const SamplerOptions& options);

// The tokens that may be drawn, and how likely each is; chances add up to 1. In no order.
struct Distribution {
    struct Entry {
        int32_t id;
        double chance;
    };
    std::vector<Entry> entries;
};

// What became of a drafted token: itself, or the token that is said in its place.
struct Verdict {
    bool accepted = false;
    int32_t token = 0;
};

// What the next token follows.
struct SampleContext {
    std::span<const int32_t> history;     // the tokens so far, prompt included
    size_t prompt = 0;                    // how many of them were not said but given
    std::span<const uint32_t> allowed{};  // a bit for each token; empty: all are allowed

    SampleContext() = default;
    SampleContext(std::span<const int32_t> tokens)  // NOLINT: implicit on purpose
        : history(tokens) {}
    SampleContext(const std::vector<int32_t>& tokens)  // NOLINT: implicit on purpose
        : history(tokens) {}
};

// The same options, seed and logits give the same tokens on every machine with the same libm.
// Cost: where nothing but top-k (or greedy) looks at the logits, they stay on the device, and k of
// them come; else one pass over all. Nothing ever sorts the whole vocabulary. Allocates only while
// its buffers grow. Thread: one caller.
class Sampler {
  public:
    using Candidate = backend::Candidate;

    // `options` must have passed CheckSampler.
    explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}
    // From here on it draws what `other` would draw, with the same random numbers.
    void Become(const Sampler& other) {
        options_ = other.options_;
        random_ = other.random_;
    }
    // -inf forbids a token. kCorrupt where a logit is NaN or +inf, or all are -inf.
    Result<int32_t> Sample(const LogitsRow& logits, const SampleContext& context);
    // What Sample draws from. Greedy: one token. Errors: as Sample.
    Status Distribute(const LogitsRow& logits, const SampleContext& context, Distribution& out);
    // Notes what Sample and Distribute will ask of the first `wanted.columns` logits of a row.
    // masked: whether the context will say what is allowed.
    void Want(bool masked, backend::WantedRows& wanted) const;
    // The least that Sample needs of a row of `columns` logits which another pipeline stage makes.
    // masked: as above. ahead: rows of the same step from which a token is drawn before this one.
    RowAsk Ask(bool masked, int64_t columns, int64_t ahead) const;
    // The last pipeline stage's part in Sample, of a row whose ask is a chain: the token, or -1
    // where logits are not finite, with the largest logit.
    Candidate DrawToken(std::span<const float> logits, const RowChain& chain);
    int32_t DrawFrom(const Distribution& distribution);
    // Whether `drafted`, which was drawn from q (and has a chance there), stays where tokens are to
    // come from p: with the probability min(1, p / q). If not, another one is drawn from
    // max(0, p - q), normalised. So what comes out is distributed as p, whatever q is.
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
    // How likely, not normalised, at a temperature.
    double Share(const Candidate& candidate, double temperature) const;
    // In [0, 1), with 53 random bits: the same on every standard library.
    static double UniformOf(uint64_t random) { return static_cast<double>(random) * 0x1p-53; }
    double Uniform() { return UniformOf(random_() >> 11); }

    SamplerOptions options_;
    std::mt19937_64 random_;
    std::vector<Candidate> candidates_;  // that may be drawn: all by id, or the best k, best first
    float best_ = 0;                     // the largest logit
    std::vector<double> weights_;        // of candidates_, not normalised
    std::vector<float> adjusted_;        // a copy of the logits
    std::vector<int32_t> recent_;
    std::vector<double> chances_;  // Judge: of q, by id; zeros between calls
    Distribution rest_;            // Judge: max(0, p - q), not normalised
};

}  // namespace weft::engine
