// Target: what a device asks of the Programs that run on it. The device states it, the builders of
// model/ keep to it: so neither knows the other.
#pragma once

#include <cstdint>
#include <limits>

namespace weft::program {

struct Target {
    // Positions of a KV page.
    int64_t page_tokens = 64;
    // Experts of a layer; elements of a position's row in a cache of latent attention.
    int64_t most_experts = std::numeric_limits<int64_t>::max();
    int64_t most_latent_columns = std::numeric_limits<int64_t>::max();
    // Whether it pools windows of keys and mixes residual streams (DeepSeek-V4).
    bool pools_windows = true;
    // Whether what tensor ranks sum up is float64 until it is summed: then a result's bits do not
    // depend on where the ranks cut.
    bool float64_reductions = true;
    // Whether an update's sums over all weights are float64; else float32 with what is rounded away
    // (program/update.h).
    bool float64_sums = true;
    // Of the logits that a training step holds at a time (program/loss.h), about.
    int64_t logits_bytes = 64 << 20;
};

}  // namespace weft::program
