#include "kernels/weight_rows.h"

#include <cstring>

namespace weft::kernels {

bool CanReadBack(const Kernels& kernels, DType dtype) {
    return kernels.level == CpuLevel::kReference || dtype != DType::kTQ1_0;
}

void ReadBack(const Kernels& kernels, const PackedMatrix& matrix, int64_t row_begin, int64_t count,
              std::byte* out, int64_t row_stride_bytes) {
    if (kernels.level != CpuLevel::kReference) {
        return weight_tiles::Unpack(matrix, row_begin, count, out, row_stride_bytes);
    }
    const auto row_bytes = static_cast<size_t>(RowBytes(matrix.dtype, matrix.cols));
    const std::byte* from = matrix.data + static_cast<size_t>(row_begin) * row_bytes;
    for (int64_t i = 0; i < count; ++i, from += row_bytes, out += row_stride_bytes) {
        std::memcpy(out, from, row_bytes);
    }
}

}  // namespace weft::kernels
