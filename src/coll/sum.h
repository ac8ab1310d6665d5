// Sums of vectors in a fixed order: the arithmetic of all_reduce.
#pragma once

#include <cstddef>
#include <span>

namespace weft::coll {

// out[i] = ((addends[0][i] + addends[1][i]) + addends[2][i]) + ..., the same bits on every CPU.
// At least one addend. `out` may be one of the addends.
void SumInOrder(std::span<const float* const> addends, float* out, size_t count);
void SumInOrder(std::span<const double* const> addends, double* out, size_t count);

}  // namespace weft::coll
