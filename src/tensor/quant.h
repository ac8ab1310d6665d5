// Rows of any DType to and from float: the definition of every block layout, in plain C++.
//
// A row is a run of whole blocks. Values follow ggml's dequantize_row_* exactly (the same float
// operations in the same order), so that "dequantized weights" means the same numbers everywhere.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "tensor/dtype.h"

namespace weft {

// src: RowBytes(dtype, dst.size()) bytes of whole blocks. dst: the floats.
void DequantizeRow(DType dtype, std::span<const std::byte> src, std::span<float> dst);

// Whether QuantizeRow knows the type: not the code books of IQ1, IQ2 and IQ3, and none of the types
// that are made at load (W4, W8, NVFP4, FP8).
bool CanQuantize(DType dtype);
// Rounds a row of floats to `dtype` the plain way (absmax or min/max per block, no importance
// weights). Used for synthetic models, KV rows and tests.
void QuantizeRow(DType dtype, std::span<const float> src, std::span<std::byte> dst);

// Sub-block j of the 8 in a Q4_K block: its 6-bit scale and minimum, packed in 12 bytes.
struct Q4KScale {
    int scale, min;
};
Q4KScale LoadQ4KScale(const std::byte* packed, int j);
void StoreQ4KScale(std::byte* packed, int j, Q4KScale value);  // packed: zeroed beforehand

}  // namespace weft
