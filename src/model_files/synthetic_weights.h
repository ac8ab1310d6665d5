// Random weights of any dtype, with mean 0 and variance 1/cols, a function of position alone.
//
// A counter-based generator (the finalizer of SplitMix64 over key + index): no state to carry, so
// any part of a row can be made without the rest of it. Block types are random bits under a fixed
// scale, with no quantization pass: 1 to 2 GB/s of weights a core.
// Thread: any. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace weft::model_files {

// The stream of one tensor.
uint64_t WeightKey(uint64_t seed, std::string_view tensor);

// Columns [col_begin, col_begin + col_count) of row `row` of a matrix of `cols` columns, as
// RowBytes(dtype, col_count) bytes. Bounds lie on blocks. Any dtype but kI32.
void RandomRow(DType dtype, uint64_t key, int64_t cols, int64_t row, int64_t col_begin,
               int64_t col_count, std::span<std::byte> out);

// Elements [first, first + out.size()) of one tensor's stream, of a normal distribution with mean 0
// and this standard deviation: the sum of twelve uniform numbers, which is within 0.003 of it
// everywhere and ends at six deviations. Integers until the last product, so all machines have the
// same bits.
void RandomNormal(uint64_t key, uint64_t first, float deviation, std::span<float> out);

}  // namespace weft::model_files
