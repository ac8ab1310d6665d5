// Vector sums in a fixed order: the arithmetic of all_reduce.
#pragma once

#include <cstddef>
#include <span>

namespace weft::coll {

// out[i] = ((addends[0][i] + addends[1][i]) + addends[2][i]) + ..., the same bits on every CPU.
// There is at least one addend. Each addend has `count` aligned values of the type of `out`. `out`
// may be one of the addends.
void SumInOrder(std::span<const std::byte* const> addends, float* out, size_t count);
void SumInOrder(std::span<const std::byte* const> addends, double* out, size_t count);
// SumInOrder for doubles; each sum is then rounded to float.
void SumInOrderRounded(std::span<const std::byte* const> addends, float* out, size_t count);
void RoundToFloat(const double* values, float* out, size_t count);

}  // namespace weft::coll
