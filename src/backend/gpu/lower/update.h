// Functions that emit the dispatches that sum squares for an optimizer update. update.cc defines
// these functions; adafactor.cc uses them, too.
#pragma once

#include <cstdint>
#include <span>

#include "backend/gpu/dispatch/operands.h"
#include "program/update.h"

namespace weft::backend::on_gpu {

// Sums of squares, one per block of elements. Each sum is a pair of float32
// (src/shaders/pairs.glsl).
struct SquareBlocks {
    Region region;
    int64_t count = 0;
};
// Sums the squares of those elements of x that are in `ranges`.
Result<SquareBlocks> SumSquaresOf(Emitter& e, program::ValueId x,
                                  std::span<const program::ElementRange> ranges);
// Adds the sums of all blocks to the number at `to`. This number is a pair of float32 or one
// float32, depending on the size of `to`.
Status AddSquareBlocks(Emitter& e, const SquareBlocks& blocks, Region to);

}  // namespace weft::backend::on_gpu
