// Layout of weights in device memory. A weight is stored in planes. For a block type, the codes
// (quantized elements) and the scales are in different planes, so that kernels can load 16 bytes of
// codes at once. A plane stores its part of each row of the matrix, one row after another; each row
// begins at a multiple of 16 bytes. A stack of matrices is stored as one matrix that has the rows
// of all of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "tensor/dtype.h"

namespace weft::backend::on_gpu {

struct Plane {
    uint64_t offset = 0;     // from the weight's address, a multiple of 256
    uint64_t row_bytes = 0;  // a multiple of 16
};
struct WeightLayout {
    static constexpr size_t kMostPlanes = 4;
    std::array<Plane, kMostPlanes> planes{};
    size_t count = 0;
    // For types with a code book (grid_weights.h): the place of the code book, which follows the
    // planes and is used by all rows.
    uint64_t table_offset = 0, table_bytes = 0;
    uint64_t bytes = 0;  // total
};

// Errors: kUnsupported (no kernel supports this type; the message names it).
Status CheckWeightType(DType dtype, int64_t cols);
WeightLayout LayoutOf(DType dtype, int64_t rows, int64_t cols);
// Writes one row, which is in the file's format, to the planes. out[p]: the place of the row in
// plane p, of that plane's row_bytes.
void PackRow(DType dtype, int64_t cols, const std::byte* row, std::span<std::byte* const> out);
// Writes the code book that belongs at table_offset, if the type has one.
void PackTable(DType dtype, std::byte* out);

}  // namespace weft::backend::on_gpu
