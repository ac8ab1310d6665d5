// Sampling: draws the next token from a row of logits.
//
// Order, as in llama.cpp: bias, forbidden tokens, penalties, DRY, top-n-sigma, top-k, typical,
// top-p, min-p, XTC, temperature, draw. temperature <= 0 means: the remaining token with the
// largest logit; among equal logits, the lowest id. Sources: top-k (Fan et al. 2018), nucleus
// sampling (Holtzman et al. 2020), min-p (Nguyen et al. 2024), repetition penalty (Keskar et al.
// 2019), DRY (dry.h), the others (cuts.h); Judge: speculative sampling (Leviathan et al. 2023,
// "Fast Inference from Transformers via Speculative Decoding"; Chen et al. 2023).
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "backend/step.h"
#include "backend/top.h"
#include "base/result.h"
#include "engine/rank/cuts.h"
#include "engine/rank/row_ask.h"
#include "engine/sampling/dry.h"
#include "engine/sampling/token_counts.h"
#include "engine/sampling/weigh.h"

namespace weft::engine {

class LogitsRow;

struct SamplerOptions {
    float temperature = 0;
    int top_k = 0;                // 0: all
    float top_p = 1;              // keeps the likeliest tokens that together have this probability
    float min_p = 0;              // keeps tokens with at least this share of the best token's
                                  // probability
    float repeat_penalty = 1;     // for recent tokens: divides positive logits, multiplies negative
                                  // ones
    int repeat_last = 64;         // number of tokens that are recent
    float presence_penalty = 0;   // subtracted from the logit of each token that was generated
                                  // before
    float frequency_penalty = 0;  // subtracted once for each time that the token was generated
    std::vector<std::pair<int32_t, float>> bias{};  // added to these tokens' logits
    uint64_t seed = 0;
    float typical_p = 1;        // keeps the most typical tokens of this total probability; 1: all
    float top_n_sigma = 0;      // keeps logits within this many standard deviations of the best; 0:
                                // all
    float xtc_probability = 0;  // how often XTC excludes top choices; 0: never
    float xtc_threshold = 0.1f;  // least probability of a top choice; above 0.5: XTC is off
    DryOptions dry{};
    std::vector<uint32_t> allowed{};  // one bit for each token that may come; empty: all may
    // Sequences that must not be generated: the last token is forbidden after the others.
    std::vector<std::vector<int32_t>> banned{};
    // Tokens that are forbidden, unless no other is allowed, until `min_tokens` tokens were
    // generated.
    std::vector<int32_t> ends{};
    int64_t min_tokens = 0;

    bool xtc() const { return xtc_probability > 0 && xtc_threshold <= 0.5f; }
    // Whether the most likely token may be excluded.
    bool reorders() const { return typical_p < 1 || xtc(); }
};

// Errors: kUsage; the message names an option that is out of range or not a number.
Status CheckSampler(const SamplerOptions& options);

// best: the largest of all logits of a row. Errors: kCorrupt, if it is not finite.
Status CheckBest(float best);

// The tokens that may be drawn and their probabilities, which sum to 1. Unsorted.
struct Distribution {
    struct Entry {
        int32_t id;
        double chance;
    };
    std::vector<Entry> entries;
};

// The result for a drafted token: it is accepted, or `token` replaces it.
struct Verdict {
    bool accepted = false;
    int32_t token = 0;
};

// The text so far, and the tokens that may come next.
struct SampleContext {
    std::span<const int32_t> history;     // the tokens so far, including the prompt
    size_t prompt = 0;                    // number of prompt tokens in `history`
    std::span<const uint32_t> allowed{};  // one bit per token of the vocabulary; empty: all tokens
                                          // are allowed

    SampleContext() = default;
    SampleContext(std::span<const int32_t> tokens)  // NOLINT: implicit on purpose
        : history(tokens) {}
    SampleContext(const std::vector<int32_t>& tokens)  // NOLINT: implicit on purpose
        : history(tokens) {}

    // The generated tokens.
    std::span<const int32_t> said() const {
        return history.subspan(std::min(prompt, history.size()));
    }
};

// Deterministic: the same options, seed and logits give the same tokens on every machine. Cost:
// with greedy sampling or top-k, without penalties, the logits stay on the device, and the host
// reads 1 or k of them. Other options read all logits a few times, by vector arithmetic, and sort
// few of them. Penalties of repetition, presence and frequency count only the tokens that the text
// gained since the last call. Allocates only while its buffers grow. Thread: one caller.
class Sampler {
  public:
    using Candidate = backend::Candidate;

    // `options` must have passed CheckSampler.
    explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}
    // Copies `other`, so that both draw the same tokens with the same random numbers. Keeps its own
    // buffers.
    void Become(const Sampler& other) {
        options_ = other.options_;
        random_ = other.random_;
    }
    // Draws the next token. A logit of -inf forbids its token. Errors: kCorrupt: a logit is NaN or
    // +inf, or all logits are -inf.
    Result<int32_t> Sample(const LogitsRow& logits, const SampleContext& context);
    // Sets `out` to the distribution from which Sample draws; greedy: one token. Errors: as Sample.
    Status Distribute(const LogitsRow& logits, const SampleContext& context, Distribution& out);
    // Adds to `wanted` the part of a row's first `wanted.columns` logits that Sample and Distribute
    // read. masked: whether SampleContext::allowed will limit the tokens.
    void Want(bool masked, backend::WantedRows& wanted) const;
    // The smallest RowRequest that suffices for Sample, for a row of `columns` logits on another
    // pipeline stage. masked: as for Want. ahead: number of rows of the same step whose tokens this
    // sampler draws before this row's.
    RowRequest Ask(bool masked, int64_t columns, int64_t ahead) const;
    // Call on the last pipeline stage: draws the token for a RowRequest with kToken. Returns the
    // token
    // (-1: a logit is not finite) with the row's largest logit.
    Candidate DrawToken(std::span<const float> logits, const RowChain& chain);
    int32_t DrawFrom(const Distribution& distribution);
    // Speculative sampling. `drafted` was drawn from q, where its probability is not 0. Judge
    // accepts it with probability min(1, p / q). Otherwise, Judge draws a token from the normalized
    // distribution max(0, p - q). The resulting token has distribution p, for any q.
    Verdict Judge(const Distribution& p, const Distribution& q, int32_t drafted);
    // Tokens counted for penalties so far.
    int64_t counted() const { return recent_.changes() + said_.changes(); }

  private:
    // Whether only the best token can be drawn.
    bool greedy() const {
        return (options_.temperature <= 0 && !options_.reorders()) || options_.top_k == 1;
    }
    // Whether no random number chooses among the remaining tokens.
    bool takes_best() const { return options_.temperature <= 0 || options_.top_k == 1; }
    Status Select(const LogitsRow& logits, const SampleContext& context);
    Status SelectTopK(const LogitsRow& logits, const SampleContext& context);
    bool Adjusts(bool masked) const;
    bool Forbids(bool masked) const;
    size_t TopK(size_t columns, bool masked) const;
    Status Adjust(const SampleContext& context);
    Status Forbid(const SampleContext& context);
    void ForbidEnds();
    void Repeat(std::span<const int32_t> history);
    void Count(const SampleContext& context);
    void SetCandidates();
    void CutTopP();
    void CutTypical();
    void CutXtc();
    template <typename Keeps>
    void Keep(float least, const Keeps& keeps);
    void KeepFound();
    int32_t BestLeft() const;
    int32_t IdOf(size_t i) const { return all_ ? static_cast<int32_t>(i) : ids_[i]; }
    int32_t Draw(double uniform);
    // A number in [0, 1) with 53 random bits, the same with every standard library.
    static double UniformOf(uint64_t random) { return static_cast<double>(random) * 0x1p-53; }
    double Uniform() { return UniformOf(random_() >> 11); }

    SamplerOptions options_;
    std::mt19937_64 random_;
    // The tokens that may be drawn: with `all_`, all tokens by id; else those in ids_.
    std::span<const float> values_;  // their logits, in memory of the caller or in kept_
    std::vector<int32_t> ids_;
    bool all_ = false;
    float best_ = 0;  // the largest logit
    std::vector<float> kept_;
    std::vector<uint32_t> indices_;
    std::vector<Typical> typical_;
    std::vector<Candidate> candidates_;
    Weights weights_;
    TopPCut cut_;
    std::vector<float> adjusted_;  // a copy of the logits
    TokenCounts recent_, said_;    // for penalties
    Dry dry_;
    std::vector<double> chances_;  // Judge: probabilities of q, by id; all zero between two calls
    Distribution rest_;            // Judge: max(0, p - q), unnormalized
};

}  // namespace weft::engine
