#include "model_files/hf/matrix.h"

#include <algorithm>
#include <cstring>

#include "tensor/quant.h"

namespace weft::model_files::hf {
namespace {

// Bytes read at a time by matrices that convert another one.
constexpr int64_t kPieceBytes = 1 << 20;

int64_t PieceRows(int64_t row_bytes) {
    return std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, row_bytes));
}

class FileMatrix final : public Matrix {
  public:
    FileMatrix(const WeightFile& file, uint64_t offset, DType dtype, int64_t rows, int64_t cols)
        : Matrix(dtype, rows, cols), file_(file), offset_(offset) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        const auto stride = static_cast<uint64_t>(RowBytes(dtype(), cols()));
        const auto piece = static_cast<uint64_t>(RowBytes(dtype(), block.cols));
        const uint64_t begin = offset_ + static_cast<uint64_t>(block.row) * stride +
                               static_cast<uint64_t>(RowBytes(dtype(), block.col));
        if (piece == stride) return file_.ReadAt(begin, out);
        return file_.ReadStrided(begin, stride, piece, out);
    }

  private:
    const WeightFile& file_;
    uint64_t offset_;
};

class FloatMatrix final : public Matrix {
  public:
    explicit FloatMatrix(std::vector<float> values)
        : Matrix(DType::kF32, static_cast<int64_t>(values.size()), 1), values_(std::move(values)) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        if (!out.empty()) std::memcpy(out.data(), values_.data() + block.row, out.size());
        return {};
    }

  private:
    std::vector<float> values_;
};

class IntMatrix final : public Matrix {
  public:
    IntMatrix(std::vector<int32_t> values, int64_t cols)
        : Matrix(DType::kI32, static_cast<int64_t>(values.size()) / cols, cols),
          values_(std::move(values)) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        const size_t bytes = BytesOf(1, block.cols);
        for (int64_t row = block.row; row < block.row + block.rows; ++row) {
            std::memcpy(out.data(), values_.data() + row * cols() + block.col, bytes);
            out = out.subspan(bytes);
        }
        return {};
    }

  private:
    std::vector<int32_t> values_;
};

class StackedMatrix final : public Matrix {
  public:
    StackedMatrix(std::vector<MatrixPtr> parts, int64_t rows)
        : Matrix(parts[0]->dtype(), rows, parts[0]->cols()), parts_(std::move(parts)) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        int64_t begin = 0;  // of a part
        for (const MatrixPtr& part : parts_) {
            const int64_t from = std::max(block.row, begin);
            const int64_t to = std::min(block.row + block.rows, begin + part->rows());
            if (from < to) {
                const size_t at = BytesOf(from - block.row, block.cols);
                const size_t bytes = BytesOf(to - from, block.cols);
                WEFT_TRY(part->Read({from - begin, to - from, block.col, block.cols},
                                    out.subspan(at, bytes)));
            }
            begin += part->rows();
        }
        return {};
    }

  private:
    std::vector<MatrixPtr> parts_;
};

class ColumnsInTurnMatrix final : public Matrix {
  public:
    ColumnsInTurnMatrix(MatrixPtr inner, int64_t groups, int64_t each, int64_t width)
        : Matrix(inner->dtype(), inner->rows(), inner->cols()),
          inner_(std::move(inner)),
          groups_(groups),
          each_(each),
          width_(width) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        if (width_ % Info(dtype()).block_elements != 0) {
            return MakeError(ErrorCode::kUnsupported,
                             "heads of {} columns cannot be reordered in {}, whose blocks have {}",
                             width_, Info(dtype()).name, Info(dtype()).block_elements);
        }
        std::vector<std::byte> rows(BytesOf(block.rows, cols()));
        WEFT_TRY(inner_->Read({block.row, block.rows, 0, cols()}, rows));
        const size_t all = BytesOf(1, cols()), own = BytesOf(1, block.cols);
        for (int64_t done = 0; done < block.cols;) {
            const int64_t column = block.col + done, part = column / width_;
            const int64_t count = std::min(width_ - column % width_, block.cols - done);
            const int64_t from =
                (part % groups_ * each_ + part / groups_) * width_ + column % width_;
            for (size_t row = 0; row < static_cast<size_t>(block.rows); ++row) {
                std::memcpy(out.data() + row * own + BytesOf(1, done),
                            rows.data() + row * all + BytesOf(1, from), BytesOf(1, count));
            }
            done += count;
        }
        return {};
    }

  private:
    MatrixPtr inner_;
    int64_t groups_, each_, width_;
};

class SomeRowsMatrix final : public Matrix {
  public:
    SomeRowsMatrix(MatrixPtr inner, int64_t first, int64_t count, int64_t stride, int64_t rows)
        : Matrix(inner->dtype(), rows, inner->cols()),
          inner_(std::move(inner)),
          first_(first),
          count_(count),
          stride_(stride) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        constexpr int64_t kLongRun = 16;  // rows: from this length on, one read per run is cheap
        if (count_ >= kLongRun) return ReadRuns(block, out);
        const int64_t most = PieceRows(stride_ * RowBytes(dtype(), block.cols));
        std::vector<std::byte> wide;
        for (int64_t done = 0; done < block.rows; done += most) {
            const int64_t rows = std::min(most, block.rows - done);
            WEFT_TRY(ReadPicked({block.row + done, rows, block.col, block.cols},
                                out.subspan(BytesOf(done, block.cols)), wide));
        }
        return {};
    }

  private:
    int64_t Source(int64_t row) const { return row / count_ * stride_ + first_ + row % count_; }

    Status ReadRuns(const Block& block, std::span<std::byte> out) const {
        for (int64_t row = block.row; row < block.row + block.rows;) {
            const int64_t rows = std::min(count_ - row % count_, block.row + block.rows - row);
            const size_t bytes = BytesOf(rows, block.cols);
            WEFT_TRY(inner_->Read({Source(row), rows, block.col, block.cols}, out.first(bytes)));
            out = out.subspan(bytes);
            row += rows;
        }
        return {};
    }

    // Reads all rows from the first wanted to the last, and keeps the wanted ones.
    Status ReadPicked(const Block& block, std::span<std::byte> out,
                      std::vector<std::byte>& wide) const {
        const int64_t begin = Source(block.row);
        const int64_t end = Source(block.row + block.rows - 1) + 1;
        wide.resize(BytesOf(end - begin, block.cols));
        WEFT_TRY(inner_->Read({begin, end - begin, block.col, block.cols}, wide));
        const size_t row_bytes = BytesOf(1, block.cols);
        for (int64_t r = 0; r < block.rows; ++r) {
            std::memcpy(out.data() + static_cast<size_t>(r) * row_bytes,
                        wide.data() + BytesOf(Source(block.row + r) - begin, block.cols),
                        row_bytes);
        }
        return {};
    }

    MatrixPtr inner_;
    int64_t first_, count_, stride_;
};

class PairedMatrix final : public Matrix {
  public:
    PairedMatrix(MatrixPtr inner, int64_t head_dim, int64_t first)
        : Matrix(inner->dtype(), inner->rows(), inner->cols()),
          inner_(std::move(inner)),
          head_dim_(head_dim),
          first_(first) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        const size_t row_bytes = BytesOf(1, block.cols);
        const int64_t end = block.row + block.rows;
        std::vector<std::byte> head(BytesOf(head_dim_, block.cols));
        for (int64_t begin = block.row / head_dim_ * head_dim_; begin < end; begin += head_dim_) {
            WEFT_TRY(inner_->Read({begin, head_dim_, block.col, block.cols}, head));
            for (int64_t i = 0; i < head_dim_; ++i) {
                const int64_t row = begin + i;
                if (row < block.row || row >= end) continue;
                const int64_t at = i - first_;
                const int64_t source =
                    at < 0 ? i : first_ + at % 2 * ((head_dim_ - first_) / 2) + at / 2;
                std::memcpy(out.data() + BytesOf(row - block.row, block.cols),
                            head.data() + BytesOf(source, block.cols), row_bytes);
            }
        }
        return {};
    }

  private:
    MatrixPtr inner_;
    int64_t head_dim_, first_;
};

class TransposedMatrix final : public Matrix {
  public:
    TransposedMatrix(MatrixPtr inner, int64_t group)
        : Matrix(inner->dtype(), inner->rows() / group * inner->cols(), group),
          inner_(std::move(inner)),
          group_(group) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        const int64_t per_group = inner_->cols();
        for (int64_t row = block.row; row < block.row + block.rows;) {
            const int64_t group = row / per_group, first = row % per_group;
            const int64_t most = PieceRows(block.cols * RowBytes(dtype(), 1));
            const int64_t rows = std::min({per_group - first, block.row + block.rows - row, most});
            const size_t bytes = BytesOf(rows, block.cols);
            WEFT_TRY(
                ReadPart({group * group_ + block.col, block.cols, first, rows}, out.first(bytes)));
            out = out.subspan(bytes);
            row += rows;
        }
        return {};
    }

  private:
    // `source`: rows and columns in the inner matrix.
    Status ReadPart(const Block& source, std::span<std::byte> out) const {
        const auto size = static_cast<size_t>(RowBytes(dtype(), 1));
        std::vector<std::byte> in(out.size());
        WEFT_TRY(inner_->Read(source, in));
        const auto rows = static_cast<size_t>(source.rows), cols = static_cast<size_t>(source.cols);
        for (size_t r = 0; r < rows; ++r) {
            for (size_t c = 0; c < cols; ++c) {
                std::memcpy(out.data() + (c * rows + r) * size, in.data() + (r * cols + c) * size,
                            size);
            }
        }
        return {};
    }

    MatrixPtr inner_;
    int64_t group_;
};

class ChangedMatrix final : public Matrix {
  public:
    ChangedMatrix(MatrixPtr inner, std::function<float(float)> change)
        : Matrix(DType::kF32, inner->rows(), inner->cols()),
          inner_(std::move(inner)),
          change_(std::move(change)) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        std::vector<float> values(static_cast<size_t>(block.rows * block.cols));
        WEFT_TRY(inner_->Read(block, std::as_writable_bytes(std::span(values))));
        for (float& value : values) value = change_(value);
        if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
        return {};
    }

  private:
    MatrixPtr inner_;
    std::function<float(float)> change_;
};

class ConvertedMatrix final : public Matrix {
  public:
    ConvertedMatrix(MatrixPtr inner, DType dtype, float add)
        : Matrix(dtype, inner->rows(), inner->cols()), inner_(std::move(inner)), add_(add) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        const int64_t unit = Info(inner_->dtype()).block_elements;
        if (block.col % unit != 0 || block.cols % unit != 0) return ReadInsideBlocks(block, out);
        const int64_t most = PieceRows(block.cols * 4);
        std::vector<std::byte> raw;
        std::vector<float> floats;
        for (int64_t done = 0; done < block.rows; done += most) {
            const int64_t rows = std::min(most, block.rows - done);
            raw.resize(inner_->BytesOf(rows, block.cols));
            floats.resize(static_cast<size_t>(rows * block.cols));
            WEFT_TRY(inner_->Read({block.row + done, rows, block.col, block.cols}, raw));
            DequantizeRow(inner_->dtype(), raw, floats);
            if (add_ != 0) {
                for (float& value : floats) value += add_;
            }
            QuantizeRow(dtype(), floats,
                        out.subspan(BytesOf(done, block.cols), BytesOf(rows, block.cols)));
        }
        return {};
    }

  private:
    // For column bounds inside a quantized block: reads the whole blocks.
    Status ReadInsideBlocks(const Block& block, std::span<std::byte> out) const {
        const int64_t unit = Info(inner_->dtype()).block_elements;
        const int64_t begin = block.col / unit * unit;
        const int64_t end = (block.col + block.cols + unit - 1) / unit * unit;
        const int64_t most = PieceRows((end - begin) * 4);
        const size_t own = BytesOf(1, block.cols), wide = BytesOf(1, end - begin);
        std::vector<std::byte> read;
        for (int64_t done = 0; done < block.rows; done += most) {
            const int64_t rows = std::min(most, block.rows - done);
            read.resize(static_cast<size_t>(rows) * wide);
            WEFT_TRY(Read({block.row + done, rows, begin, end - begin}, read));
            const std::byte* from = read.data() + BytesOf(1, block.col - begin);
            for (int64_t row = 0; row < rows; ++row, from += wide) {
                std::memcpy(out.data(), from, own);
                out = out.subspan(own);
            }
        }
        return {};
    }

    MatrixPtr inner_;
    float add_;
};

class RowScaledMatrix final : public Matrix {
  public:
    RowScaledMatrix(MatrixPtr inner, DType dtype, std::vector<RowScale> scales)
        : Matrix(dtype, inner->rows(), inner->cols()),
          inner_(Converted(std::move(inner), DType::kF32)),
          scales_(std::move(scales)) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        std::vector<float> row(static_cast<size_t>(block.cols));
        for (int64_t i = 0; i < block.rows; ++i) {
            const Block one{block.row + i, 1, block.col, block.cols};
            WEFT_TRY(inner_->Read(one, std::as_writable_bytes(std::span(row))));
            const float scale = ScaleOf(one.row);
            for (float& value : row) value *= scale;
            QuantizeRow(dtype(), row, out.subspan(BytesOf(i, block.cols), BytesOf(1, block.cols)));
        }
        return {};
    }

  private:
    float ScaleOf(int64_t row) const {
        for (const RowScale& some : scales_) {
            if (row < some.rows) return some.scale;
            row -= some.rows;
        }
        return 1;
    }
    MatrixPtr inner_;
    std::vector<RowScale> scales_;
};

class ReshapedMatrix final : public Matrix {
  public:
    ReshapedMatrix(MatrixPtr column, int64_t cols)
        : Matrix(column->dtype(), column->rows() / cols, cols), column_(std::move(column)) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        const size_t row_bytes = BytesOf(1, block.cols);
        for (int64_t row = block.row; row < block.row + block.rows; ++row) {
            WEFT_TRY(
                column_->Read({row * cols() + block.col, block.cols, 0, 1}, out.first(row_bytes)));
            out = out.subspan(row_bytes);
        }
        return {};
    }

  private:
    MatrixPtr column_;
};

bool IsFloatType(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

MatrixPtr FromFile(const WeightFile& file, uint64_t offset, DType dtype, int64_t rows,
                   int64_t cols) {
    return std::make_unique<FileMatrix>(file, offset, dtype, rows, cols);
}

MatrixPtr FromFloats(std::vector<float> values) {
    return std::make_unique<FloatMatrix>(std::move(values));
}

MatrixPtr FromInts(std::vector<int32_t> values, int64_t cols) {
    return std::make_unique<IntMatrix>(std::move(values), cols);
}

MatrixPtr Stacked(std::vector<MatrixPtr> parts) {
    WEFT_CHECK(!parts.empty());
    int64_t rows = 0;
    for (const MatrixPtr& part : parts) {
        WEFT_CHECK(part->dtype() == parts[0]->dtype() && part->cols() == parts[0]->cols());
        rows += part->rows();
    }
    return std::make_unique<StackedMatrix>(std::move(parts), rows);
}

MatrixPtr SomeRows(MatrixPtr inner, int64_t first, int64_t count, int64_t stride, int64_t rows) {
    WEFT_CHECK(first >= 0 && count > 0 && rows > 0 && count <= stride);
    WEFT_CHECK((rows - 1) / count * stride + first + (rows - 1) % count < inner->rows());
    return std::make_unique<SomeRowsMatrix>(std::move(inner), first, count, stride, rows);
}

MatrixPtr ColumnsInTurn(MatrixPtr inner, int64_t groups, int64_t each, int64_t width) {
    WEFT_CHECK(inner->cols() == groups * each * width);
    if (inner->dtype() == DType::kFP8 && width % Info(DType::kFP8).block_elements != 0) {
        inner = Converted(std::move(inner), DType::kBF16);
    }
    return std::make_unique<ColumnsInTurnMatrix>(std::move(inner), groups, each, width);
}

MatrixPtr HalvesToPairs(MatrixPtr inner, int64_t head_dim, int64_t first) {
    WEFT_CHECK(first >= 0 && head_dim > first && (head_dim - first) % 2 == 0);
    WEFT_CHECK(inner->rows() % head_dim == 0);
    return std::make_unique<PairedMatrix>(std::move(inner), head_dim, first);
}

MatrixPtr Transposed(MatrixPtr inner, int64_t group) {
    WEFT_CHECK(IsFloatType(inner->dtype()) && group > 0 && inner->rows() % group == 0);
    return std::make_unique<TransposedMatrix>(std::move(inner), group);
}

MatrixPtr Changed(MatrixPtr inner, std::function<float(float)> change) {
    WEFT_CHECK(inner->dtype() == DType::kF32);
    return std::make_unique<ChangedMatrix>(std::move(inner), std::move(change));
}

MatrixPtr Converted(MatrixPtr inner, DType dtype, float add) {
    WEFT_CHECK(IsFloatType(dtype));
    if (inner->dtype() == dtype && add == 0) return inner;
    return std::make_unique<ConvertedMatrix>(std::move(inner), dtype, add);
}

MatrixPtr Scaled(MatrixPtr inner, std::vector<RowScale> scales) {
    const auto plain = [](const RowScale& some) { return some.scale == 1; };
    if (std::ranges::all_of(scales, plain)) return inner;
    const DType dtype = IsFloatType(inner->dtype()) ? inner->dtype() : DType::kBF16;
    return std::make_unique<RowScaledMatrix>(std::move(inner), dtype, std::move(scales));
}

MatrixPtr Reshaped(MatrixPtr column, int64_t cols) {
    WEFT_CHECK(column->cols() == 1 && cols > 0 && column->rows() % cols == 0);
    return std::make_unique<ReshapedMatrix>(std::move(column), cols);
}

MatrixPtr AsVector(MatrixPtr column) {
    const int64_t cols = column->rows();
    return Reshaped(std::move(column), cols);
}

}  // namespace weft::model_files::hf
