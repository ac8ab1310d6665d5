// Sampling: from logits to the next token.
//
// Order, as llama.cpp has it: repetition penalty, top-k, top-p, min-p, temperature, draw.
// temperature <= 0 is greedy: the largest logit, the lowest id among equals.
// Sources: top-k (Fan et al. 2018), nucleus sampling (Holtzman et al. 2020), min-p (Nguyen et al.
// 2024), repetition penalty (Keskar et al. 2019).
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/result.h"

namespace weft::engine {

struct SamplerOptions {
    float temperature = 0;
    int top_k = 0;              // 0: all
    float top_p = 1;            // smallest set of this probability
    float min_p = 0;            // at least this share of the best token's probability
    float repeat_penalty = 1;   // divides positive logits (multiplies negative) of recent tokens
    int repeat_last = 64;       // how many tokens are recent
    uint64_t seed = 0;
};

// kUsage, naming the option, for values out of range or not a number.
Status CheckSampler(const SamplerOptions& options);

class Sampler {
  public:
    explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}
    // logits [vocab]; history: the tokens so far, prompt included. kCorrupt where a logit is NaN.
    Result<int32_t> Sample(std::span<const float> logits, std::span<const int32_t> history);

  private:
    struct Candidate {
        float logit;
        int32_t id;
    };
    void Penalize(std::span<const int32_t> history);
    int32_t Draw();

    SamplerOptions options_;
    std::mt19937_64 random_;
    std::vector<Candidate> candidates_;
};

}  // namespace weft::engine
