// Random weights of any dtype, with mean 0 and variance 1/cols, as a function of position only.
//
// Uses a counter-based generator (the finalizer of SplitMix64 over key + index), which has no
// state, so that any part of a row can be generated alone. Blocks have random codes and a fixed
// scale, without a quantization step: 1 to 2 GB/s of weights per core.
// Thread: any. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace weft::model_files {

// The key of one tensor's random stream.
uint64_t WeightKey(uint64_t seed, std::string_view tensor);

// Generates columns [col_begin, col_begin + col_count) of row `row` of a matrix with `cols`
// columns, as RowBytes(dtype, col_count) bytes. Bounds must lie on block bounds. Any dtype but
// kI32.
void RandomRow(DType dtype, uint64_t key, int64_t cols, int64_t row, int64_t col_begin,
               int64_t col_count, std::span<std::byte> out);

// Elements [first, first + out.size()) of one tensor's stream, with a normal distribution of mean 0
// and the given standard deviation, approximated by the sum of twelve uniform numbers. The sum's
// distribution function differs from the normal one by at most 0.003, and its values end at six
// deviations. The arithmetic is integer until the last product, so that all machines get the same
// bits.
void RandomNormal(uint64_t key, uint64_t first, float deviation, std::span<float> out);

}  // namespace weft::model_files
