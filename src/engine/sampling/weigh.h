// Arithmetic over all logits of a row, by vectors. Results have the same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::engine {

// Unnormalized probabilities.
class Weights {
  public:
    // Sets weight i to exp(scale * (logits[i] - best)), with a relative error below 3e-7, or to 0
    // if it is below about e^-87.7. best: the largest logit, finite; scale: more than 0. Logits may
    // be -inf.
    void Set(std::span<const float> logits, float best, float scale);
    double total() const { return total_; }
    std::span<const float> all() const { return weights_; }
    // The first i at which the weights up to i have a sum of more than share * total(); share: in
    // [0, 1). Never a weight of 0.
    size_t Find(double share) const;

  private:
    static constexpr size_t kBlock = 256;
    std::vector<float> weights_;
    std::vector<double> sums_;  // of each kBlock weights
    double total_ = 0;
};

// Sets `indices` to the indices of the values that are `least` or more, ascending.
void FindAtLeast(std::span<const float> values, float least, std::vector<uint32_t>& indices);

// The cut of top-p: the likeliest tokens that together have a share of the total weight.
class TopPCut {
  public:
    // weights: of `values` at scale 1. share: more than 0. At least one token stays.
    void Set(std::span<const float> values, const Weights& weights, double share);
    // Keeps returns whether a value stays. Call it with each value of at least least(), in the
    // order of the indices.
    float least() const { return least_; }
    bool Keeps(float value) { return value > least_ || ties_-- > 0; }

  private:
    struct Entry {
        float value, weight;
    };
    void CutBucket(double wanted);

    std::vector<double> sums_;   // of the weights in each bucket
    std::vector<Entry> bucket_;  // the bucket that has the cut
    float least_ = 0;
    int64_t ties_ = 0;  // number of values equal to least_ that stay
};

}  // namespace weft::engine
