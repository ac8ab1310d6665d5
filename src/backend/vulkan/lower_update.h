// Sums of squares of an update's values: lower_update.cc.
#pragma once

#include <cstdint>
#include <span>

#include "backend/vulkan/lower_train.h"
#include "program/update.h"

namespace weft::backend::vulkan {

// Sums of blocks, each as two float32 (src/shaders/pairs.glsl).
struct SquareBlocks {
    Region region;
    int64_t count = 0;
};
// Of the elements of x in the ranges.
Result<SquareBlocks> SumSquaresOf(Emitter& e, program::ValueId x,
                                  std::span<const program::ElementRange> ranges);
// Adds all of them to the number at `to`: a pair, or one float32 where that is its size.
Status AddSquareBlocks(Emitter& e, const SquareBlocks& blocks, Region to);

}  // namespace weft::backend::vulkan
