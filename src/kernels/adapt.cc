#include "kernels/adapt.h"

#include <algorithm>
#include <cstring>

namespace weft::kernels {

int64_t AdapterBytes(DType dtype, int64_t rows, int64_t cols) {
    return (rows + kStripRows - 1) / kStripRows * kStripRows * RowBytes(dtype, cols);
}

void PackAdapter(const PackedMatrix& matrix, int64_t row_begin, int64_t count,
                 const std::byte* source, int64_t source_stride_bytes) {
    const int64_t size = RowBytes(matrix.dtype, 1);
    const auto at = [&](int64_t row, int64_t col) {
        const int64_t strip = row / kStripRows * matrix.cols;
        return matrix.data + ((strip + col) * kStripRows + row % kStripRows) * size;
    };
    for (int64_t i = 0; i < count; ++i) {
        for (int64_t col = 0; col < matrix.cols; ++col) {
            std::memcpy(at(row_begin + i, col), source + i * source_stride_bytes + col * size,
                        static_cast<size_t>(size));
        }
    }
    if (row_begin + count < matrix.rows) return;
    for (int64_t row = matrix.rows; row % kStripRows != 0; ++row) {
        for (int64_t col = 0; col < matrix.cols; ++col) {
            std::memset(at(row, col), 0, static_cast<size_t>(size));
        }
    }
}

AdaptBlock NextBlock(std::span<const AdapterPair> pairs, size_t most,
                     std::span<const AdaptedRow>& rows) {
    const int32_t adapter = rows[0].adapter;
    size_t count = 1;
    while (count < std::min(most, rows.size()) && rows[count].adapter == adapter) ++count;
    const auto found = std::ranges::lower_bound(pairs, adapter, {}, &AdapterPair::adapter);
    AdaptBlock block{nullptr, rows.first(count)};
    if (found != pairs.end() && found->adapter == adapter) block.pair = &*found;
    rows = rows.subspan(count);
    return block;
}

}  // namespace weft::kernels
