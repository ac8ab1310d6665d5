// A region is the part of an array of the training state that a rank holds or reads.
//
// An array has one kind of numbers ("weight", "adam_m", ...) for one tensor of the model file, as a
// matrix of `rows` x `cols` (a vector is one row). A rank holds a block of the array (tensor
// parallelism divides rows or columns) or, with ZeRO, a range of the block's elements in row-major
// order. Every sharding consists of such regions. To convert one sharding to another, each pair of
// regions is compared, and common elements are copied, run by run.
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
    int64_t begin = 0, end = 0;  // range within the row_count * col_count elements of the block

    int64_t elements() const { return end - begin; }
    bool operator==(const TensorRegion&) const = default;
    static TensorRegion Whole(const Array& array) {
        return {0, array.rows, 0, array.cols, 0, array.rows * array.cols};
    }
};

// The most elements of an array.
inline constexpr int64_t kMostElements = int64_t{1} << 48;

// Whether the array has 1 to kMostElements elements, and a name and kind of reasonable length.
bool IsValidArray(const Array& array);
// Whether the block lies in the array, the range lies in the block, and neither is empty.
bool IsInside(const TensorRegion& region, const Array& array);

// Calls run(a_at, b_at, count) for every run of `count` elements that a and b share and that are
// contiguous in both; the run begins at element a_at of a's range and b_at of b's. The runs are
// ascending and as long as possible. Both regions belong to the same array.
void ForEachRun(const TensorRegion& a, const TensorRegion& b,
                const std::function<void(int64_t a_at, int64_t b_at, int64_t count)>& run);

// Extends `region` by `next` if these are one region: `next` has the following rows, and both have
// the same columns. Returns whether they are. (The matrices of a stack lie one below the other.)
bool Extend(TensorRegion& region, const TensorRegion& next);

// Whether the regions together cover every element of the array.
bool Cover(const std::vector<TensorRegion>& regions, const Array& array);

}  // namespace weft::train
