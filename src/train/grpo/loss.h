// The loss of group relative policy optimization (Shao et al. 2024), and its derivative by the loss
// of each token, which is the weight of the token in the backward pass.
//
// With lp a token's log-probability, old its value before the first update on these completions,
// ref its value in the reference model, A the advantage of the completion, m the tokens that count:
//
//     r      exp(lp - old); importance level `sequence`: exp of the mean of lp - old over a
//            completion (Zheng et al. 2025)
//     token  -min(r A, clamp(r, 1 - epsilon, 1 + epsilon_high) A) + beta r k3
//     k3     exp(ref - lp) - (ref - lp) - 1, an estimate of the KL divergence (Schulman 2020)
//     loss   grpo: mean over completions of their mean token; dapo (Yu et al. 2025) and bnpo: mean
//            over all tokens; dr_grpo (Liu et al. 2025): sum over tokens, divided by completions
//            times most tokens of a completion
//
// The means are over the whole batch, on any ranks and micro-batches.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "train/grpo/options.h"

namespace weft::train {

// The loss divides by these sums over the whole batch.
struct GrpoBatch {
    double completions = 0, tokens = 0;  // of all ranks; tokens: those that count
    double most_tokens = 0;              // of a completion
};

// Sums over the tokens that count; a rank has the part of its own completions.
struct GrpoSums {
    enum Name { kLoss, kTokens, kKl, kLow, kHigh, kMinusLogp, kNames };
    std::array<double, kNames> sums{};
    double& operator[](Name name) { return sums[name]; }
};

// Means over the tokens in `sums`, and their names in TRL; the entropy is estimated by the mean of
// -lp.
std::vector<std::string> LossValueNames(const GrpoOptions& options);
std::vector<double> ValuesOf(const GrpoSums& sums, const GrpoOptions& options);

class GrpoLoss {
  public:
    GrpoLoss(const GrpoOptions& options, const GrpoBatch& batch);

    // A completion: losses of its tokens (-lp); old and ref: log-probabilities, or empty (old: lp;
    // ref: beta must be 0). Sets weights to the derivative of the batch's loss by `losses`, and
    // adds to `sums`. (The clipped share of level `sequence` counts all tokens of a completion.)
    void Add(double advantage, std::span<const float> losses, std::span<const float> old,
             std::span<const float> ref, std::span<float> weights, GrpoSums& sums) const;

  private:
    const GrpoOptions& options_;
    const GrpoBatch batch_;
    const bool by_token_;
};

// The advantage of each completion; consecutive `group` rewards belong to one prompt. A reward that
// is not a number does not count, and has the advantage 0.
std::vector<double> AdvantagesOf(std::span<const double> rewards, int64_t group,
                                 const std::string& scale);

// The mean, and the deviation with one degree of freedom less, of the numbers; 0 for none.
struct MeanAndDeviation {
    double mean = 0, deviation = 0;
};
MeanAndDeviation MeanOf(std::span<const double> values);

}  // namespace weft::train
