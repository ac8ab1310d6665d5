// Cuts of the tokens that may be drawn, in addition to weigh.h.
// Sources: typical sampling (Meister et al. 2022, "Locally Typical Sampling"); top-n-sigma (Tang et
// al. 2024, "Not All Logits Are You Need"); XTC (p-e-w, "Exclude Top Choices",
// text-generation-webui pull request 6335). Details as in llama.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling/weigh.h"

namespace weft::engine {

// The least logit that top-n-sigma keeps: n standard deviations below the best. Forbidden logits
// (-inf, or far below the others) do not count.
float LeastOfSigma(std::span<const float> logits, float best, float n);

struct Typical {
    double distance;  // of the token's information from the entropy, in nats
    uint32_t index;
};

// Sets `indices` to the indices of the tokens whose information is nearest to the entropy and which
// together have more than `share` of the weight, ascending; at least one. weights: of `values` at
// scale 1. buffer: its content does not matter.
void FindTypical(std::span<const float> values, float best, const Weights& weights, double share,
                 std::vector<Typical>& buffer, std::vector<uint32_t>& indices);

// Sets `indices` to all tokens without the top choices, which have at least `threshold` of the
// weight; only the least likely top choice is kept. weights: of `values` at scale 1.
void FindWithoutTopChoices(std::span<const float> values, const Weights& weights, double threshold,
                           std::vector<uint32_t>& indices);

}  // namespace weft::engine
