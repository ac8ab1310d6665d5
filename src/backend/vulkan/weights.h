// Layout of weights in device memory. A weight is stored in planes: the codes of a block type are
// in other planes than its scales, so that kernels can load 16 bytes of codes at once. A plane
// stores the rows of the matrix one after another, each beginning at a multiple of 16 bytes. A
// stack of matrices is stored as one matrix that has the rows of all of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "tensor/dtype.h"

namespace weft::backend::vulkan {

struct Plane {
    uint64_t offset = 0;     // from the weight's address, a multiple of 256
    uint64_t row_bytes = 0;  // a multiple of 16
};
struct WeightLayout {
    static constexpr size_t kMostPlanes = 4;
    std::array<Plane, kMostPlanes> planes{};
    size_t count = 0;
    // The code book of types that have one (grid_weights.h). It follows the planes and serves all
    // rows.
    uint64_t table_offset = 0, table_bytes = 0;
    uint64_t bytes = 0;  // total
};

// Errors: kUnsupported (no kernel takes this type; the message names it).
Status CheckWeightType(DType dtype, int64_t cols);
WeightLayout LayoutOf(DType dtype, int64_t rows, int64_t cols);
// Writes one row, which is in the file's format, to the planes: out[p] is the row's place in plane
// p and has that plane's row_bytes.
void PackRow(DType dtype, int64_t cols, const std::byte* row, std::span<std::byte* const> out);
// Writes the code book that belongs at table_offset, if the type has one.
void PackTable(DType dtype, std::byte* out);

}  // namespace weft::backend::vulkan
