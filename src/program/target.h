// Target: the limits and preferences of a device for the Programs that run on it. The device states
// them and the builders of model/ follow them, so that devices and model/ do not depend on each
// other.
#pragma once

#include <cstdint>
#include <limits>

namespace weft::program {

struct Target {
    // Positions of a KV page.
    int64_t page_tokens = 64;
    // Maximum experts of a layer; maximum elements per position in a cache of latent attention.
    int64_t most_experts = std::numeric_limits<int64_t>::max();
    int64_t most_latent_columns = std::numeric_limits<int64_t>::max();
    // Whether addends of tensor-parallel sums are float64 until they are summed. The bits of a
    // result then do not depend on how the ranks shard it.
    bool float64_reductions = true;
    // Whether an update's sums over all weights are float64. Otherwise each is two float32 numbers:
    // the sum and its rounding error (program/update.h).
    bool float64_sums = true;
    // Approximate bytes of logits that a training step holds at a time (program/loss.h).
    int64_t logits_bytes = 64 << 20;
};

}  // namespace weft::program
