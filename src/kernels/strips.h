// The packed form of weights that the AVX2 and AVX-512 tables share.
//
// A strip is 16 rows, and a strip holds its blocks in k order. A packed block interleaves the 16
// rows' blocks so that one vector lane is one row: each field of the file's block (4-byte groups
// of quants, f16 scales, ...) becomes [count][16 rows] elements, in the order of the table in
// strips.cc. Nothing is converted, so the packed bytes are those of the file, but for the 6-bit
// sub-scales (and minima) of Q4_K, Q5_K and IQ4_XS, which become bytes (+2.8, 2.3, 1.5 %), and the
// fifth bits of Q5_0 and Q5_1, which change places:
//
//   F32       per k:   f32[16]
//   F16 BF16  per k:   u16[16]
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
//   Q4_K      per 256: d f16[16], dmin f16[16], scale u8[8][16], min u8[8][16], quants u32[32][16]
//   Q5_K      per 256: as Q4_K with fifth bits u32[8][16] before the quants
//   IQ4_XS    per 256: d f16[16], scale i8[8][16], quants u32[32][16]
//   Q6_K      per 256: d f16[16], scale i8[16][16], then for each half of 128 and i = 0..7:
//             low nibbles u32[16] of bytes 4i.. of its first 32, of its second 32, and the high
//             pairs u32[16] of bytes 4i.. (read in this order: a plain stream)
// All other quantized types: the file's blocks of the 16 rows, one after another (decoded.h).
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::strips {

// What multiplies a type's strips: a kernel of its own, or the one for plain blocks.
enum class Form {
    kFloats,
    kQ4_0,
    kQ4_1,
    kQ5_0,
    kQ5_1,
    kQ8_0,
    kQ4_K,
    kQ5_K,
    kQ6_K,
    kIQ4_NL,
    kIQ4_XS,
    kMXFP4,
    kW4,
    kW8,
    kPlainBlocks
};

constexpr Form FormOf(DType dtype) {
    switch (dtype) {
        case DType::kF32:
        case DType::kF16:
        case DType::kBF16: return Form::kFloats;
        case DType::kQ4_0: return Form::kQ4_0;
        case DType::kQ4_1: return Form::kQ4_1;
        case DType::kQ8_0: return Form::kQ8_0;
        case DType::kQ4_K: return Form::kQ4_K;
        case DType::kQ6_K: return Form::kQ6_K;
        case DType::kQ5_0: return Form::kQ5_0;
        case DType::kQ5_1: return Form::kQ5_1;
        case DType::kQ5_K: return Form::kQ5_K;
        case DType::kIQ4_NL: return Form::kIQ4_NL;
        case DType::kIQ4_XS: return Form::kIQ4_XS;
        case DType::kMXFP4: return Form::kMXFP4;
        case DType::kW4: return Form::kW4;
        case DType::kW8: return Form::kW8;
        case DType::kQ2_K:
        case DType::kQ3_K:
        case DType::kIQ1_S:
        case DType::kIQ1_M:
        case DType::kIQ2_XXS:
        case DType::kIQ2_XS:
        case DType::kIQ2_S:
        case DType::kIQ3_XXS:
        case DType::kIQ3_S:
        case DType::kTQ1_0:
        case DType::kTQ2_0: return Form::kPlainBlocks;
        case DType::kI32:
        case DType::kF64: break;
    }
    WEFT_CHECK(!"neither I32 nor F64 holds weights");
    return Form::kFloats;
}

// Bytes of one packed block: 16 rows of one block of the type.
constexpr int64_t BlockBytes(DType dtype) {
    const int64_t wider = dtype == DType::kQ4_K || dtype == DType::kQ5_K ? 4
                          : dtype == DType::kIQ4_XS                      ? 2
                                                                         : 0;
    return (Info(dtype).block_bytes + wider) * kStripRows;
}

// Bytes of one strip of `cols` columns.
constexpr int64_t StripBytes(DType dtype, int64_t cols) {
    return cols / Info(dtype).block_elements * BlockBytes(dtype);
}

int64_t PackedBytes(DType dtype, int64_t rows, int64_t cols);
void Pack(const PackedMatrix& matrix, int64_t row_begin, int64_t count, const std::byte* source,
          int64_t source_stride_bytes);
void Embedding(const EmbeddingArgs& args, int part, int parts);

// What `prepare` makes of 32 activations for quantized weights: x[i] = scale * q[i], nearly.
// A weight with zero point z needs sum((w - z) q) = sum(w q) - z sum(q): the accumulator starts
// at `from_z`. One cache line.
struct alignas(64) ActivationBlock {
    int8_t q[32];        // in [-127, 127]
    float scale;         // absmax / 127
    float scaled_sum;    // scale * sum(q)
    int32_t from_8;      // -8 sum(q)
    int32_t from_128;    // -128 sum(q)
    int32_t from_32[2];  // -32 sum(q) of each half of 16
    int32_t unused[2];
};
static_assert(sizeof(ActivationBlock) == 64);

// Blocks from one row of activations to the next: odd, so that the rows of a tile do not all fall
// into one set of the L1 cache.
inline int64_t PreparedBlocks(int64_t cols) {
    return cols / 32 | 1;
}

inline int64_t PreparedBytes(int64_t cols) {
    return PreparedBlocks(cols) * static_cast<int64_t>(sizeof(ActivationBlock));
}

}  // namespace weft::kernels::strips
