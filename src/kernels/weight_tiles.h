// The packed form of weights, which is the same for all kernel tables except the reference.
//
// A strip is 16 rows, with its blocks in k order. A packed block interleaves the blocks of the 16
// rows, so that each vector lane has data of one row: each field of the file's block (4-byte groups
// of quants, f16 scales, ...) becomes [count][16 rows] elements, in the order of the table in
// weight_tiles.cc. The packed bytes equal the bytes of the file, with these exceptions: the 6-bit
// sub-scales (and minima) of Q3_K, Q4_K, Q5_K and IQ4_XS become bytes (+3.6, 2.8, 2.3, 1.5 %); the
// fifth bits of Q5_0 and Q5_1 and the codes of Q3_K are reordered; the base-3 digits of TQ1_0
// become the bit pairs of TQ2_0 (+22 %):
//
//   F32       per k:   f32[16]
//   F16       per k:   u16[16]
//   BF16      per 2 k: u16[16][2], zeros beyond the last column up to a multiple of 32
//   Q4_0      per 32:  quants u32[4][16], d f16[16]
//   Q4_1      per 32:  quants u32[4][16], d f16[16], m f16[16]
//   Q5_0      per 32:  quants u32[4][16], fifth bits u32[16], d f16[16]
//   Q5_1      per 32:  quants u32[4][16], fifth bits u32[16], d f16[16], m f16[16]
//             bit g of byte i of the fifth bits belongs to k = 4g + i
//   Q8_0      per 32:  quants u32[8][16], d f16[16]
//   IQ4_NL    per 32:  as Q4_0
//   MXFP4     per 32:  quants u32[4][16], exponent u8[16]
//   W4        per 32:  quants u32[4][16], head u32[16]
//   W8        per 32:  quants u32[8][16], head u32[16]
//   FP8       per 64:  codes u32[16][16], scale f32[16]: dword i has columns 4 i, 4 i + 2,
//             4 i + 1 and 4 i + 3, so that its even bytes are a pair of neighbors, and so are
//             its odd ones
//   NVFP4     per 64:  quants u32[2][4][16], scale f32[16], scale bytes u8[4][16]
//   Q2_K      per 256: d f16[16], dmin f16[16], scale and min nibbles u8[16][16], bit pairs
//             u32[16][16]
//   Q3_K      per 256: d f16[16], scale i8[16][16], then for i = 0..7 the dwords a, b, c u32[16]
//             of bytes 4i..: a byte of a has the codes of elements g = 0 and 1 (of g * 32 + byte)
//             in 3 bits each and the lower two bits of g = 6, b of 2, 3 and 7, c of 4 and 5 and
//             the third bits of 6 and 7
//   TQ2_0     per 256: d f16[16], bit pairs u32[16][16]
//   Q4_K      per 256: d f16[16], dmin f16[16], scale u8[8][16], min u8[8][16], quants
//             u32[32][16]
//   Q5_K      per 256: as Q4_K with fifth bits u32[8][16] before the quants
//   IQ4_XS    per 256: d f16[16], scale i8[8][16], quants u32[32][16]
//   Q6_K      per 256: d f16[16], scale i8[16][16], then for each half of 128 and i = 0..7:
//             low nibbles u32[16] of bytes 4i.. of its first 32, of its second 32, and the high
//             pairs u32[16] of bytes 4i.. (read in this order: one stream)
//   IQ1_S     per 256: d f16[16], then per 32: index bytes u32[16], nibbles u16[16]: nibble g has
//             the upper 3 bits of group g's index, and above them bit g of the scale (g < 3), or
//             the sign
//   IQ1_M     per 256: scale words u16[4][16], then per 32: index bytes u32[16], nibbles u16[16]:
//             the upper 3 bits of group g's index and its sign
//   IQ2_XXS   per 256: d f16[16], then per 32: index bytes u32[16], signs and scale u32[16]
//   IQ2_XS    per 256: d f16[16], scale nibbles u8[8][16], then per 32: lower 8 bits of the
//             indices u32[16], four times 7 signs and above them the four ninth bits u32[16]
//   IQ2_S     per 256: d f16[16], scale nibbles u8[8][16], upper bits of the indices u8[8][16],
//             then per 32: index bytes u32[16], signs u32[16]
//   IQ3_XXS   per 256: d f16[16], then per 32: index bytes u32[2][16], signs and scale u32[16]
//   IQ3_S     per 256: d f16[16], scale nibbles u8[4][16], ninth bits of the indices u8[8][16],
//             then per 32: index bytes u32[2][16], signs u32[16]
#pragma once

#include <array>

#include "kernels/args.h"

namespace weft::kernels::weight_tiles {

// Bytes of one packed block: one block of the type for each of 16 rows.
constexpr int64_t BlockBytes(DType dtype) {
    int64_t bytes = Info(dtype).block_bytes;
    if (dtype == DType::kQ3_K || dtype == DType::kQ4_K || dtype == DType::kQ5_K) bytes += 4;
    if (dtype == DType::kIQ4_XS) bytes += 2;
    if (dtype == DType::kTQ1_0) bytes = Info(DType::kTQ2_0).block_bytes;
    return bytes * kStripRows;
}

// Bytes of one strip of `cols` columns.
constexpr int64_t StripBytes(DType dtype, int64_t cols) {
    if (dtype == DType::kBF16) cols = (cols + 31) / 32 * 32;
    return cols / Info(dtype).block_elements * BlockBytes(dtype);
}

int64_t PackedBytes(DType dtype, int64_t rows, int64_t cols);
void Pack(const PackedMatrix& matrix, int64_t row_begin, int64_t count, const std::byte* source,
          int64_t source_stride_bytes);
void Embedding(const EmbeddingArgs& args, int part, int parts);

// 32 activations x in the format ActivationFormat::kInt8: x[i] is approximately scale * q[i]. For
// weights w with zero point z, sum((w - z) q) = sum(w q) - z sum(q), so the sum starts at -z
// sum(q): the members from_8, from_128 and from_32. For products with two 16-bit sums per lane,
// from_8 and from_32 are two int16: of bytes 0 and 1 of each dword, and of bytes 2 and 3. One cache
// line.
struct alignas(64) ActivationBlock {
    int8_t q[32];          // in [-127, 127]
    float scale;           // absmax / 127
    float scaled_sum;      // scale * sum(q)
    int32_t from_8;        // -8 sum(q)
    int32_t from_128;      // -128 sum(q)
    int32_t from_32[2];    // -32 sum(q) of each half of 16
    float scaled_half[2];  // scale * sum(q) of each half
};
static_assert(sizeof(ActivationBlock) == 64);

// 32 activations in the format ActivationFormat::kBF16; zeros beyond the last column.
using BF16Block = std::array<uint16_t, 32>;
static_assert(sizeof(BF16Block) == sizeof(ActivationBlock));

// Stride of activation rows in blocks: odd, so that the rows of a tile do not all map to the same
// set of the L1 cache.
inline int64_t QuantizedBlocks(int64_t cols) {
    return (cols + 31) / 32 | 1;
}

inline int64_t QuantizedActivationBytes(int64_t cols) {
    return QuantizedBlocks(cols) * static_cast<int64_t>(sizeof(ActivationBlock));
}

}  // namespace weft::kernels::weight_tiles
