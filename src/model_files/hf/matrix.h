// Matrices of a Hugging Face folder as a GGUF file would hold them: each is read by blocks of rows
// and columns, from the file or through other matrices that it owns (permuted, stacked, converted).
//
// A row is whole blocks of its dtype; columns of a read must lie on blocks. A vector is a matrix of
// one row for the reader (AsVector), but rows of one column while it is put together, so that what
// moves a weight's rows moves its bias the same way.
// Thread: immutable; Read from any thread at the same time. Errors: those of WeightFile.
#pragma once

#include <cstddef>
#include <cstdint>
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

// Rows as they lie in a file, from byte `offset` on. The file must outlive the matrix.
MatrixPtr FromFile(const WeightFile& file, uint64_t offset, DType dtype, int64_t rows,
                   int64_t cols);

// Values in memory, F32: as many rows as values, of one column.
MatrixPtr FromFloats(std::vector<float> values);

// Numbers in memory, I32, in rows of `cols`, which divides their count.
MatrixPtr FromInts(std::vector<int32_t> values, int64_t cols);

// One after another; all of the same dtype and columns.
MatrixPtr Stacked(std::vector<MatrixPtr> parts);

// From row `first` on, the first `count` of every `stride` rows: one of two halves that alternate,
// or the rows of one kind where each head has some of two. `rows` in all.
MatrixPtr SomeRows(MatrixPtr inner, int64_t first, int64_t count, int64_t stride, int64_t rows);

// Columns of `groups` x `each` blocks of `width`: those of each group one behind the other become
// the first of all groups, then the second of all, and so on. FP8 becomes BF16 where `width` is no
// multiple of its block; kUnsupported, from Read: the same of another dtype.
MatrixPtr ColumnsInTurn(MatrixPtr inner, int64_t groups, int64_t each, int64_t width);

// The rows of a head, whose two rotated halves become neighbouring pairs: Q and K of a llama as
// GGUF files have them.
MatrixPtr HalvesToPairs(MatrixPtr inner, int64_t head_dim);

// Each group of `group` rows, [group, cols], becomes [cols, group]. F32, F16 or BF16.
MatrixPtr Transposed(MatrixPtr inner, int64_t group);

// Values + `add`, rounded to F32, F16 or BF16 from any dtype.
MatrixPtr Converted(MatrixPtr inner, DType dtype, float add = 0);

// The first `rows` rows times `scale`, then those of the next, and so on; rows behind all of them
// stay. Of block types BF16 is made.
struct RowScale {
    int64_t rows = 0;
    float scale = 1;
};
MatrixPtr Scaled(MatrixPtr inner, std::vector<RowScale> scales);

// [n, 1] as rows of `cols`.
MatrixPtr Reshaped(MatrixPtr column, int64_t cols);
// [n, 1] as one row of n.
MatrixPtr AsVector(MatrixPtr column);

}  // namespace weft::model_files::hf
