// Rows of F16 or BF16 to floats and back, rounded to nearest even: as tensor/half.h, many at once,
// with the CPU's own conversions of F16 where it has them (the same bits).
#pragma once

#include <cstddef>
#include <span>

#include "tensor/dtype.h"

namespace weft {

// dtype: kF16 or kBF16. from, to: 2 bytes for each float, at any address.
void WidenRow(DType dtype, const std::byte* from, std::span<float> to);
void NarrowRow(DType dtype, std::span<const float> from, std::byte* to);

}  // namespace weft
