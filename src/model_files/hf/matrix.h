// Matrices of a Hugging Face folder in the form that a GGUF file would have. A matrix is read by
// blocks of rows and columns. It reads from a file, or from other matrices that it owns and
// permutes, stacks or converts.
//
// A row is whole blocks of its dtype; the column bounds of a read must lie on block bounds. A
// vector is finally a matrix of one row (AsVector). While the tensor table is built, it is a
// column, so that a function that reorders the rows of a weight can also reorder its bias.
// Thread: immutable; Read may be called from several threads at once. Errors: those of WeightFile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model_files/weight_file.h"
#include "tensor/dtype.h"

namespace weft::model_files::hf {

// Rows [row, row + rows) and columns [col, col + cols).
struct Block {
    int64_t row, rows, col, cols;
};

class Matrix {
  public:
    Matrix(DType dtype, int64_t rows, int64_t cols) : dtype_(dtype), rows_(rows), cols_(cols) {}
    virtual ~Matrix() = default;
    Matrix(const Matrix&) = delete;
    Matrix& operator=(const Matrix&) = delete;

    DType dtype() const { return dtype_; }
    int64_t rows() const { return rows_; }
    int64_t cols() const { return cols_; }
    size_t BytesOf(int64_t rows, int64_t cols) const {
        return static_cast<size_t>(rows) * static_cast<size_t>(RowBytes(dtype_, cols));
    }
    // Fills `out`, BytesOf(block.rows, block.cols) bytes, row after row without gaps.
    virtual Status Read(const Block& block, std::span<std::byte> out) const = 0;

  private:
    DType dtype_;
    int64_t rows_, cols_;
};

using MatrixPtr = std::unique_ptr<Matrix>;

// Rows stored contiguously in a file, from byte `offset` on. The file must outlive the matrix.
MatrixPtr FromFile(const WeightFile& file, uint64_t offset, DType dtype, int64_t rows,
                   int64_t cols);

// F32 values in memory, as a column.
MatrixPtr FromFloats(std::vector<float> values);

// I32 values in memory, in rows of `cols` values; the number of values must be a multiple of
// `cols`.
MatrixPtr FromInts(std::vector<int32_t> values, int64_t cols);

// Matrices on top of each other; all must have the same dtype and columns.
MatrixPtr Stacked(std::vector<MatrixPtr> parts);

// Selects the first `count` of every `stride` rows, from row `first` on, `rows` rows in total. Used
// to select one of two interleaved halves, or one kind of rows if heads have two kinds.
MatrixPtr SomeRows(MatrixPtr inner, int64_t first, int64_t count, int64_t stride, int64_t rows);

// Reorders blocks of `width` columns. The input has `groups` groups of `each` blocks; the result
// has the first block of every group, then the second block of every group, and so on. FP8 becomes
// BF16 if `width` is not a multiple of its block; for other block types, Read fails with
// kUnsupported.
MatrixPtr ColumnsInTurn(MatrixPtr inner, int64_t groups, int64_t each, int64_t width);

// Reorders the rows of each head from row `first` on: two halves become neighboring pairs, the
// order of Q and K in the GGUF files of Llama models.
MatrixPtr HalvesToPairs(MatrixPtr inner, int64_t head_dim, int64_t first = 0);

// Transposes each [group, cols] group of rows to [cols, group]. F32, F16 or BF16.
MatrixPtr Transposed(MatrixPtr inner, int64_t group);

// An F32 matrix with each value changed when it is read.
MatrixPtr Changed(MatrixPtr inner, std::function<float(float)> change);

// Values of any dtype plus `add`, rounded to F32, F16 or BF16.
MatrixPtr Converted(MatrixPtr inner, DType dtype, float add = 0);

// Multiplies the first `rows` rows by `scale`, then the next run of rows by its scale, and so on;
// the remaining rows stay. Block types become BF16.
struct RowScale {
    int64_t rows = 0;
    float scale = 1;
};
MatrixPtr Scaled(MatrixPtr inner, std::vector<RowScale> scales);

// A column [n, 1] as rows of `cols`.
MatrixPtr Reshaped(MatrixPtr column, int64_t cols);
// A column [n, 1] as one row.
MatrixPtr AsVector(MatrixPtr column);

}  // namespace weft::model_files::hf
