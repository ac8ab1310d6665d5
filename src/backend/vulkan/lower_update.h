// Sums of squares of an update's values: lower_update.cc.
#pragma once

#include <cstdint>
#include <span>

#include "backend/vulkan/lower_train.h"
#include "program/update.h"

namespace weft::backend::vulkan {

// Sums of squares per block, each as two float32 (src/shaders/pairs.glsl).
struct SquareBlocks {
    Region region;
    int64_t count = 0;
};
// Sums the squares of the elements of x in `ranges`.
Result<SquareBlocks> SumSquaresOf(Emitter& e, program::ValueId x,
                                  std::span<const program::ElementRange> ranges);
// Adds all blocks to the number at `to`: a pair of float32, or one float32 if `to` has that size.
Status AddSquareBlocks(Emitter& e, const SquareBlocks& blocks, Region to);

}  // namespace weft::backend::vulkan
