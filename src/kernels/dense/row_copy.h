// Operations on whole rows. The operations call row kernels (dense/rows.h) of the given table of
// kernels. lookup.cc, experts.cc and update.cc use these operations.
#pragma once

#include <cstring>

#include "kernels/kernels.h"

namespace weft::kernels::dense {

// Sets row `to` of y to factor * row `from` of x. The matrices may have any types.
inline void CopyRow(const Kernels& kernels, const ConstMatrix& x, int64_t from, const Matrix& y,
                    int64_t to, int64_t cols, float factor = 1) {
    kernels.scale({x.From(from, 0), 1, cols, factor, y.From(to, 0)}, 0, 1);
}
// Sets row 0 of y to row 0 of a + row 0 of b. The matrices may have any types.
inline void AddRow(const Kernels& kernels, const ConstMatrix& a, const ConstMatrix& b,
                   const Matrix& y, int64_t cols) {
    kernels.add({a, b, 1, cols, y}, 0, 1);
}
// Sets columns [begin, begin + count) of a row to zero.
inline void ClearRow(const Matrix& y, int64_t row, int64_t begin, int64_t count) {
    std::memset(y.From(row, begin).data, 0, static_cast<size_t>(count * ElementBytes(y.type)));
}

// Adds in eight sums, so that the compiler uses vectors.
inline float DotInLanes(const float* a, const float* b, int64_t count) {
    float sums[8] = {};
    const int64_t whole = count / 8 * 8;
    for (int64_t i = 0; i < whole; i += 8) {
        for (int64_t j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
    }
    for (int64_t i = whole; i < count; ++i) sums[i - whole] += a[i] * b[i];
    float sum = 0;
    for (const float lane : sums) sum += lane;
    return sum;
}

// Bytes of one part's scratch memory for `count` floats, a multiple of 64.
constexpr int64_t FloatScratchBytes(int64_t count) {
    return (count * static_cast<int64_t>(sizeof(float)) + 63) / 64 * 64;
}
// Returns the scratch memory of part number `part`, as floats.
template <typename Args>
float* ScratchFloats(const Args& args, int part) {
    return reinterpret_cast<float*>(args.scratch + part * args.scratch_bytes);
}

}  // namespace weft::kernels::dense
