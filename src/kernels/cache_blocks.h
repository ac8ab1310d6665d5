// Block types of a KV cache: Q8_0, Q5_1 and Q4_0. A row of a head is a sequence of blocks, as in a
// GGUF file (tensor/dtype.h), without a rotation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace weft::kernels {

inline constexpr int64_t kCacheBlock = 32;  // elements
inline constexpr int64_t kMostCacheBlockBytes = 34;

// A block begins with f16 numbers: the scale, and for Q5_1 the minimum. Codes follow, in bytes.
constexpr int64_t CacheBlockHalves(DType dtype) {
    return dtype == DType::kQ5_1 ? 2 : 1;
}

// Rounds kCacheBlock floats to a block, with the bits of llama.cpp's quantize_row_q8_0_ref,
// quantize_row_q5_1_ref or quantize_row_q4_0_ref. But the scale of a block with a NaN is NaN, so
// that attention to it is NaN as with a cache of floats.
void EncodeCacheBlock(DType dtype, const float* x, std::byte* block);

}  // namespace weft::kernels
