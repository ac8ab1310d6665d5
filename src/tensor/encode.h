// Rounding rows of floats to a quantized type with care: `weft quantize`. For each block the scales
// (and minima) are searched for that make the weighted sum of squared errors least; quant.h has the
// plain way, which is faster and worse.
//
// The same bits come out on every CPU: the levels differ in how many blocks they search at once,
// not in the order of their float operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hw/cpu.h"
#include "tensor/dtype.h"

namespace weft {

// Rows, one after another. A row is whole blocks of `dtype`.
struct EncodeArgs {
    DType dtype;
    int64_t cols;
    std::span<const float> src;  // finite; whole rows
    // One for each column, positive: how much an error there weighs (the mean square of what the
    // column is multiplied with). Empty: nothing is known, and large weights count for more.
    std::span<const float> importance;
    std::span<std::byte> dst;  // RowBytes of every row
};

// Whether Encode knows the type: those of CanQuantize, and IQ1, IQ2 and IQ3.
bool CanEncode(DType dtype);
void Encode(const EncodeArgs& args, CpuLevel level);

// As DequantizeRow, with the CPU's own conversions of F16.
void Decode(DType dtype, std::span<const std::byte> src, std::span<float> dst, CpuLevel level);

}  // namespace weft
