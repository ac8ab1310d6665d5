// Weights of the code-book types (IQ1, IQ2, IQ3), decoded on the way.
//
// Their strips hold the file's bytes (strips.h). A Grid of vector/grids.h or avx512/grids.h makes
// of one block of 16 rows the integers and scales that the dot products take; vector/decoded.cc has
// the loops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/args.h"

namespace weft::kernels {

// 32 columns of 16 rows: row r's weight 4 j + n is q[j][r][n] * scale[h][r], where h is its half of
// 16 columns (types with one scale for 32: h = 0). q is an int8: as it is for AVX2, plus 128 for
// AVX-512.
struct alignas(64) DecodedUnit {
    uint8_t q[8][kStripRows][4];
    float scale[2][kStripRows];
};

inline constexpr int kUnitsPerBlock = 8;

// A Grid with its code book's tables: made at the first call, never changed.
template <typename Grid>
const Grid& TheGrid() {
    static const Grid grid;
    return grid;
}

}  // namespace weft::kernels
