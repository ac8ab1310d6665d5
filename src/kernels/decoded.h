// Weights decoded on the way: for the types that the AVX tables have no code of their own for.
//
// Their strips hold the file's blocks as they are: block k of row 0, of row 1, ... of row 15, then
// block k + 1 of row 0. DecodeStripBlock makes integers and scales of the 16 rows of one block, in
// the order in which the dot products take them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace weft::kernels {

// 32 columns of 16 rows: row r's weight 4 j + n is q[j][r][n] * scale[h][r] + offset[h][r], where h
// is its half of 16 columns.
struct alignas(64) DecodedUnit {
    int8_t q[8][kStripRows][4];
    float scale[2][kStripRows];
    float offset[2][kStripRows];
};

inline constexpr int kMostUnits = 8;

// packed: 16 blocks. units: one for each 32 columns of a block.
void DecodeStripBlock(DType dtype, const std::byte* packed, DecodedUnit* units);

}  // namespace weft::kernels
