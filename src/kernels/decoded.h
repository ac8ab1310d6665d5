// Decoded weights of the codebook types (IQ1, IQ2, IQ3).
//
// The strips of these weights hold the file's bytes (weight_tiles.h). A Grid is a decoder for one
// type, in vector/grids.h or avx512/grids.h: it decodes a block of 16 rows to the integers and
// scales of the dot products. vector/decoded.cc has the loops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/args.h"

namespace weft::kernels {

// 32 columns of 16 rows. Weight 4 j + n of row r is q[j][r][n] * scale[h][r], where h is the half
// of 16 columns in which the weight is (h = 0 for types with one scale per 32 columns). q is an
// int8; for AVX-512 it is an int8 plus 128.
struct alignas(64) DecodedUnit {
    uint8_t q[8][kStripRows][4];
    float scale[2][kStripRows];
};

inline constexpr int kUnitsPerBlock = 8;

// Returns a Grid with its codebook tables. The first call creates it; after that it is constant.
template <typename Grid>
const Grid& TheGrid() {
    static const Grid grid;
    return grid;
}

}  // namespace weft::kernels
