// What a quantized block is made of, the same for every type: small integers, and for each 16 of
// them a scale and an offset. Weight i is
//
//     q[i] * scale[i / 16] + offset[i / 16]
//
// in float32, rounded after the product and after the sum, which is what ggml's dequantize_row_*
// gives. Dequantizing and the kernels that have no code of their own for a type stand on this.
//
// Source of the layouts: the GGUF specification and the ggml block definitions; MXFP4: OCP
// Microscaling Formats 1.0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace weft {

inline constexpr int kLargestBlock = 256;
inline constexpr int kPartElements = 16;

struct BlockParts {
    int8_t q[kLargestBlock];
    float scale[kLargestBlock / kPartElements];
    float offset[kLargestBlock / kPartElements];
};

// block: one block of a quantized type, not of FP8, whose codes are floats. Only the first
// block_elements of `parts` are written.
void SplitBlock(DType dtype, const std::byte* block, BlockParts& parts);

}  // namespace weft
