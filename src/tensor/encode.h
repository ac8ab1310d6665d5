// Quantizes rows of floats with a search, for `weft quantize`: for each block, finds the scales
// (and minima) that minimize the weighted sum of squared errors. quant.h rounds without a search,
// which is faster and less accurate.
//
// All CPU levels give the same bits. CPU levels search different numbers of blocks at once, but
// with the same order of float operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hw/cpu.h"
#include "tensor/dtype.h"

namespace weft {

// Consecutive rows. Each row is a sequence of whole blocks of `dtype`.
struct EncodeArgs {
    DType dtype;
    int64_t cols;
    std::span<const float> src;  // finite; whole rows
    // One positive importance per column, by which squared errors in that column are multiplied:
    // the mean square of the activations that are multiplied by the column. If this is empty,
    // errors of weights with a large magnitude count for more.
    std::span<const float> importance;
    std::span<std::byte> dst;  // RowBytes of every row
};

// Whether Encode supports the type: the types of CanQuantize, and IQ1, IQ2 and IQ3.
bool CanEncode(DType dtype);
void Encode(const EncodeArgs& args, CpuLevel level);

// As DequantizeRow (tensor/quant.h), but F16 is converted by CPU instructions.
void Decode(DType dtype, std::span<const std::byte> src, std::span<float> dst, CpuLevel level);

}  // namespace weft
