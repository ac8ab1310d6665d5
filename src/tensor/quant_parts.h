// Splits a quantized block of any type into a common form: small integers q, with a scale and an
// offset for each 16 of them. Weight i is
//
//     q[i] * scale[i / 16] + offset[i / 16]
//
// in float32, rounded after the product and after the sum. These are the bits of ggml's
// dequantize_row_*. Used to dequantize, and by kernels for types that have no kernel of their own.
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

// block: one block of a quantized type except FP8, whose codes are floats. Writes only the first
// block_elements of `parts`.
void SplitBlock(DType dtype, const std::byte* block, BlockParts& parts);

}  // namespace weft
