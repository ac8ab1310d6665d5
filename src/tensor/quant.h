// Converts rows of any DType to and from float, in plain C++: the definition of every block layout.
//
// A row is a sequence of whole blocks. Dequantization does the same float operations in the same
// order as ggml's dequantize_row_*, so that it gives the same bits.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "tensor/dtype.h"

namespace weft {

// src: the row's blocks, RowBytes(dtype, dst.size()) bytes.
void DequantizeRow(DType dtype, std::span<const std::byte> src, std::span<float> dst);

// Whether QuantizeRow supports the type: all except the codebook types IQ1, IQ2 and IQ3, and the
// types that are converted at load (W4, W8, NVFP4, FP8).
bool CanQuantize(DType dtype);
// Quantizes a row of floats without a search (absmax or min/max per block, no importance weights).
// Used for synthetic models, KV cache rows and tests.
void QuantizeRow(DType dtype, std::span<const float> src, std::span<std::byte> dst);

// The 6-bit scale and minimum of one of the 8 sub-blocks of a Q4_K block. StoreQ4KScale writes the
// scale and minimum of sub-block j into the 12 bytes that hold all of them.
struct Q4KScale {
    int scale, min;
};
Q4KScale LoadQ4KScale(const std::byte* packed, int j);
void StoreQ4KScale(std::byte* packed, int j, Q4KScale value);  // packed: zeroed beforehand

}  // namespace weft
