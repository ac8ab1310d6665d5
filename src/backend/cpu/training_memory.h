// Where the values of a training Program live: part of training.cc.
//
// Weights, gradients and what an optimizer keeps have regions of their own; views lie within them.
// Activations share one arena, or, with several slots, one arena for what a forward pass leaves to
// its backward pass for each slot, and one for the rest. Inputs have a place for each slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/memory.h"
#include "base/result.h"
#include "program/chunks.h"

namespace weft::backend {

class TrainingMemory {
  public:
    // overlap: as TrainingArenaOptions has it. Errors: kOutOfMemory.
    Status Plan(const program::ChunkedProgram& chunked, int64_t max_tokens, int64_t max_outputs,
                int slots, bool overlap);
    std::byte* At(program::ValueId id, int slot) const;
    std::span<std::byte> gradients() const {
        return {gradients_.data(), static_cast<size_t>(gradients_.size_bytes())};
    }
    int64_t state_bytes() const {
        return weights_.size_bytes() + gradients_.size_bytes() + optimizer_.size_bytes();
    }
    int64_t arena_bytes() const {
        return kept_.size_bytes() + brief_.size_bytes() + inputs_.size_bytes();
    }

  private:
    enum class Region : uint8_t { kNone, kWeights, kGradients, kOptimizer, kKept, kBrief, kInputs };
    struct Place {
        Region region = Region::kNone;
        int64_t offset = 0;
    };
    Status PlanArenas(const program::ChunkedProgram& chunked, int64_t tokens, int64_t outputs,
                      int slots, bool overlap);

    std::vector<Place> places_;  // by ValueId
    Memory weights_, gradients_, optimizer_, kept_, brief_, inputs_;
    int64_t kept_stride_ = 0, inputs_stride_ = 0;  // from slot to slot
};

}  // namespace weft::backend
