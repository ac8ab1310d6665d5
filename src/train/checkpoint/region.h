// Where a part of an array of the training state lies: what a rank holds, what it wants back.
//
// An array is one kind of number ("weight", "adam_m", ...) of one tensor of the model file, as a
// matrix of `rows` x `cols` (a vector: one row). A rank holds a block of it (tensor parallelism
// cuts rows or columns) and, where ZeRO shares that out, a range of the block's elements, counted
// row by row. Any cut of a run is such regions, and so is any cut of another run: what both have in
// common is copied, run by run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model_files/hf/safetensors.h"

namespace weft::train {

using model_files::hf::SafeType;

struct Array {
    std::string kind, tensor;
    int64_t rows = 0, cols = 0;
    SafeType type = SafeType::kF32;

    bool operator==(const Array&) const = default;
    std::string Name() const { return kind + " of " + tensor; }
};

struct TensorRegion {
    int64_t row_begin = 0, row_count = 0, col_begin = 0, col_count = 0;  // the block
    int64_t begin = 0, end = 0;  // of its row_count * col_count elements

    int64_t elements() const { return end - begin; }
    bool operator==(const TensorRegion&) const = default;
    static TensorRegion Whole(const Array& array) {
        return {0, array.rows, 0, array.cols, 0, array.rows * array.cols};
    }
};

// The most elements of an array.
inline constexpr int64_t kMostElements = int64_t{1} << 48;

// 1 to kMostElements elements, and a name and kind of reasonable length.
bool IsSane(const Array& array);
// The block lies in the array, the range in the block, and neither is empty.
bool IsInside(const TensorRegion& region, const Array& array);

// Calls run(a_at, b_at, count) for everything that both hold: `count` elements, which are
// neighbours in either, the a_at-th of a's range and the b_at-th of b's. As few runs as there can
// be, ascending. Both lie in the same array.
void ForEachRun(const TensorRegion& a, const TensorRegion& b,
                const std::function<void(int64_t a_at, int64_t b_at, int64_t count)>& run);

// The regions together have every element of the array.
bool Cover(const std::vector<TensorRegion>& regions, const Array& array);

}  // namespace weft::train
