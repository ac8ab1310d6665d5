// Quantizes rows of floats with a search, for `weft quantize`: for each block, finds the scales
// (and minima) that minimize the weighted sum of squared errors. quant.h rounds without a search,
// which is faster and less accurate.
//
// All CPU levels give the same bits: they differ in how many blocks they search at once, not in the
// order of float operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hw/cpu.h"
#include "tensor/dtype.h"

namespace weft {

// Consecutive rows. A row is whole blocks of `dtype`.
struct EncodeArgs {
    DType dtype;
    int64_t cols;
    std::span<const float> src;  // finite; whole rows
    // One positive weight per column for its squared errors: the mean square of the activations
    // that the column is multiplied by. Empty: not known; large weights then count for more.
    std::span<const float> importance;
    std::span<std::byte> dst;  // RowBytes of every row
};

// Whether Encode supports the type: the types of CanQuantize, and IQ1, IQ2 and IQ3.
bool CanEncode(DType dtype);
void Encode(const EncodeArgs& args, CpuLevel level);

// As DequantizeRow, but F16 is converted by CPU instructions.
void Decode(DType dtype, std::span<const std::byte> src, std::span<float> dst, CpuLevel level);

}  // namespace weft
