// Converts rows of F16 or BF16 to floats and back, rounding to nearest even. Gives the same bits as
// tensor/half.h, but uses F16 instructions if the CPU has them.
#pragma once

#include <cstddef>
#include <span>

#include "tensor/dtype.h"

namespace weft {

// dtype: kF16 or kBF16. from, to: 2 bytes per float, at any alignment.
void WidenRow(DType dtype, const std::byte* from, std::span<float> to);
void NarrowRow(DType dtype, std::span<const float> from, std::byte* to);

}  // namespace weft
