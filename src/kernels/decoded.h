// Decoded weights of the codebook types (IQ1, IQ2, IQ3).
//
// Their strips hold the file's bytes (weight_tiles.h). A Grid of vector/grids.h or avx512/grids.h
// decodes a block of 16 rows to the integers and scales of the dot products; vector/decoded.cc has
// the loops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/args.h"

namespace weft::kernels {

// 32 columns of 16 rows: row r's weight 4 j + n is q[j][r][n] * scale[h][r], where h is its half of
// 16 columns (types with one scale per 32: h = 0). q is an int8; for AVX-512 plus 128.
struct alignas(64) DecodedUnit {
    uint8_t q[8][kStripRows][4];
    float scale[2][kStripRows];
};

inline constexpr int kUnitsPerBlock = 8;

// A Grid with its codebook tables: created at the first call, then constant.
template <typename Grid>
const Grid& TheGrid() {
    static const Grid grid;
    return grid;
}

}  // namespace weft::kernels
