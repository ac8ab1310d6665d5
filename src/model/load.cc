#include "model/load.h"

#include <algorithm>
#include <vector>

#include "tensor/quant.h"

namespace weft::model {
namespace {

// Transposes each matrix of the file, [cols of the weight, all columns].
Status ReadTransposed(const model_files::ModelSource& source, const model_files::TensorInfo& tensor,
                      const program::Value& weight, int64_t row, int64_t count,
                      std::span<std::byte> out, uint64_t* bytes_read) {
    const int64_t rows = weight.shape[1], cols = weight.shape[2];
    const int64_t begin = (weight.slice.first_matrix + row / rows) * weight.slice.matrix_rows +
                          weight.slice.row_begin;
    std::vector<std::byte> raw(static_cast<size_t>(cols * RowBytes(tensor.dtype, tensor.cols)));
    WEFT_TRY(source.ReadRows(tensor, begin, cols, 0, tensor.cols, raw, bytes_read));
    std::vector<float> plain(static_cast<size_t>(cols * tensor.cols));
    DequantizeRow(tensor.dtype, raw, plain);
    std::vector<float> turned(static_cast<size_t>(cols));
    const auto row_bytes = static_cast<size_t>(RowBytes(weight.dtype, cols));
    for (int64_t i = 0; i < count; ++i) {
        for (int64_t c = 0; c < cols; ++c) {
            turned[static_cast<size_t>(c)] =
                plain[static_cast<size_t>(c * tensor.cols + row % rows + i)];
        }
        QuantizeRow(weight.dtype, turned,
                    out.subspan(static_cast<size_t>(i) * row_bytes, row_bytes));
    }
    return {};
}

// A vector is one row of the file, and a slice of it a slice of columns. Some vectors of Mamba-2
// and Kimi Linear are stacked: one column or one row per group.
Status ReadVector(const model_files::ModelSource& source, const model_files::TensorInfo& tensor,
                  int64_t begin, int64_t count, std::span<std::byte> out, uint64_t* bytes_read) {
    const int64_t cols = tensor.cols;
    if (cols == 1) return source.ReadRows(tensor, begin, count, 0, 1, out, bytes_read);
    for (int64_t at = begin; at < begin + count;) {
        const int64_t col = at % cols, some = std::min(cols - col, begin + count - at);
        const auto bytes = static_cast<size_t>(RowBytes(tensor.dtype, some));
        WEFT_TRY(source.ReadRows(tensor, at / cols, 1, col, some, out.first(bytes), bytes_read));
        out = out.subspan(bytes);
        at += some;
    }
    return {};
}

}  // namespace

Status ReadWeight(const model_files::ModelSource& source, const program::Value& weight, int64_t row,
                  int64_t count, std::span<std::byte> out, uint64_t* bytes_read) {
    const model_files::TensorInfo* tensor = source.FindTensor(weight.slice.name);
    WEFT_CHECK(tensor != nullptr);
    const program::Shape& shape = weight.shape;
    if (shape.rank == 1) {
        const int64_t begin = weight.slice.row_begin + row;
        return ReadVector(source, *tensor, begin, count, out, bytes_read);
    }
    if (weight.slice.transposed) {
        return ReadTransposed(source, *tensor, weight, row, count, out, bytes_read);
    }
    return source.ReadRows(*tensor, program::FileRow(weight, row), count, weight.slice.col_begin,
                           shape[shape.rank - 1], out, bytes_read);
}

}  // namespace weft::model
