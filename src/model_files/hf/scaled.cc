// 8-bit and 4-bit floats with scales: FP8, NVFP4, MXFP4, MXFP8.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "model_files/hf/linear_maker.h"
#include "model_files/nvfp4.h"
#include "tensor/half.h"

namespace weft::model_files::hf {
namespace {

using ByteTable = std::array<float, 256>;

constexpr ByteTable kE4m3 = [] {
    ByteTable table{};
    for (size_t i = 0; i < table.size(); ++i) table[i] = E4m3ToF32(static_cast<uint8_t>(i));
    return table;
}();

// 2^(i - 127); 255 is NaN.
constexpr ByteTable kE8m0 = [] {
    ByteTable table{};
    for (uint32_t i = 0; i < 255; ++i) {
        table[i] = std::bit_cast<float>(i == 0 ? 0x400000u : i << 23);
    }
    table[255] = std::numeric_limits<float>::quiet_NaN();
    return table;
}();

constexpr std::array<float, 16> kE2m1 = {0.0f, 0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

Error NanCode(int64_t row, int64_t col) {
    return MakeError(ErrorCode::kCorrupt,
                     "the E4M3 code of row {}, column {} is NaN; expected a number", row, col);
}

// Bytes mapped to F32 by a table. checks: a NaN is an error (for weights; scales are checked where
// they are used).
class TableMatrix final : public Matrix {
  public:
    TableMatrix(const ByteRows& bytes, const ByteTable& table, int64_t rows, bool checks = false)
        : Matrix(DType::kF32, rows, bytes.row_bytes),
          bytes_(bytes),
          table_(table),
          checks_(checks) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        std::vector<std::byte> read(static_cast<size_t>(block.rows * block.cols));
        WEFT_TRY(bytes_.Read(block, read));
        for (size_t i = 0; i < read.size(); ++i) {
            const float value = table_[std::to_integer<size_t>(read[i])];
            if (checks_ && std::isnan(value)) {
                const auto at = static_cast<int64_t>(i);
                return NanCode(block.row + at / block.cols, block.col + at % block.cols);
            }
            std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
        }
        return {};
    }

  private:
    ByteRows bytes_;
    const ByteTable& table_;
    bool checks_;
};

// A scale of a whole tensor, or of each piece: 1, a number, or 1 / a number.
struct TensorScale {
    MatrixPtr number;  // [pieces, 1]; nullptr: 1
    bool divides = false;
    Result<float> Read(int64_t piece) const {
        if (number == nullptr) return 1.0f;
        float value = 0;
        const Block one{number->rows() == 1 ? 0 : piece, 1, 0, 1};
        WEFT_TRY(number->Read(one, std::as_writable_bytes(std::span(&value, 1))));
        WEFT_TRY(CheckScale(value));
        if (divides && value == 0) {
            return MakeError(ErrorCode::kCorrupt, "the tensor-wide scale, a divisor, is 0");
        }
        return value;
    }
    float Of(float scale, float read) const { return divides ? scale / read : scale * read; }
};

// Scales by blocks of rows and columns. The rows consist of pieces; blocks start anew in each.
class BlockScales {
  public:
    struct Shape {
        int64_t block_rows, block_cols, piece_rows;
    };
    // scales: F32, one per block.
    BlockScales(MatrixPtr scales, const Shape& shape, TensorScale all)
        : scales_(std::move(scales)), shape_(shape), all_(std::move(all)) {}

    // The scales of one row, for the columns of the block being read.
    struct Row {
        int64_t piece = -1, scale_row = -1;
        float all = 1;
        std::vector<float> scales;
    };
    // Reads the scales of matrix row `index` into `row`.
    Status Take(int64_t index, const Block& block, Row& row) const {
        const int64_t piece = index / shape_.piece_rows, inside = index % shape_.piece_rows;
        const int64_t down = (shape_.piece_rows + shape_.block_rows - 1) / shape_.block_rows;
        const int64_t scale_row = piece * down + inside / shape_.block_rows;
        if (scale_row == row.scale_row) return {};
        if (piece != row.piece) {
            WEFT_ASSIGN(row.all, all_.Read(piece));
        }
        row.piece = piece;
        row.scale_row = scale_row;
        const int64_t first = block.col / shape_.block_cols;
        const int64_t count = (block.col + block.cols - 1) / shape_.block_cols - first + 1;
        row.scales.resize(static_cast<size_t>(count));
        WEFT_TRY(scales_->Read({scale_row, 1, first, count},
                               std::as_writable_bytes(std::span(row.scales))));
        for (float& scale : row.scales) {
            WEFT_TRY(CheckScale(scale));
            scale = all_.Of(scale, row.all);
        }
        return {};
    }
    // The scale of matrix column `col`.
    float Of(const Row& row, const Block& block, int64_t col) const {
        const int64_t first = block.col / shape_.block_cols;
        return row.scales[static_cast<size_t>(col / shape_.block_cols - first)];
    }

  private:
    MatrixPtr scales_;
    Shape shape_;
    TensorScale all_;
};

// Values (of a float matrix) times the scales of their blocks, as BF16.
class ScaledMatrix final : public Matrix {
  public:
    ScaledMatrix(MatrixPtr values, BlockScales scales)
        : Matrix(DType::kBF16, values->rows(), values->cols()),
          values_(std::move(values)),
          scales_(std::move(scales)) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        BlockScales::Row scales;
        std::vector<float> values;
        const int64_t most = std::max<int64_t>(1, (1 << 18) / block.cols);  // rows at a time
        for (int64_t done = 0; done < block.rows; done += most) {
            const int64_t first = block.row + done, rows = std::min(most, block.rows - done);
            values.resize(static_cast<size_t>(rows * block.cols));
            WEFT_TRY(values_->Read({first, rows, block.col, block.cols},
                                   std::as_writable_bytes(std::span(values))));
            for (int64_t r = 0; r < rows; ++r) {
                WEFT_TRY(scales_.Take(first + r, block, scales));
                PutRow(values.data() + r * block.cols, scales, block,
                       out.data() + BytesOf(done + r, block.cols));
            }
        }
        return {};
    }

  private:
    void PutRow(const float* values, const BlockScales::Row& scales, const Block& block,
                std::byte* out) const {
        for (int64_t c = 0; c < block.cols; ++c) {
            const float scale = scales_.Of(scales, block, block.col + c);
            const uint16_t half = F32ToBF16(values[c] * scale);
            std::memcpy(out + 2 * c, &half, sizeof half);
        }
    }

    MatrixPtr values_;
    BlockScales scales_;
};

// E4M3 codes with scales per block, where blocks begin and end at multiples of 64 columns, as
// blocks of DType::kFP8.
class Fp8Matrix final : public Matrix {
  public:
    static constexpr int64_t kBlock = Info(DType::kFP8).block_elements;

    Fp8Matrix(const ByteRows& codes, BlockScales scales, int64_t rows)
        : Matrix(DType::kFP8, rows, codes.row_bytes), codes_(codes), scales_(std::move(scales)) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        BlockScales::Row scales;
        std::vector<std::byte> codes;
        const int64_t most = std::max<int64_t>(1, (1 << 20) / block.cols);  // rows at a time
        for (int64_t done = 0; done < block.rows; done += most) {
            const int64_t first = block.row + done, rows = std::min(most, block.rows - done);
            codes.resize(static_cast<size_t>(rows * block.cols));
            WEFT_TRY(codes_.Read({first, rows, block.col, block.cols}, codes));
            for (int64_t r = 0; r < rows; ++r) {
                WEFT_TRY(scales_.Take(first + r, block, scales));
                const auto row = std::span<const std::byte>(codes).subspan(
                    static_cast<size_t>(r * block.cols), static_cast<size_t>(block.cols));
                if (const auto nan = std::ranges::find_if(row, IsNan); nan != row.end()) {
                    return NanCode(first + r, block.col + (nan - row.begin()));
                }
                PutRow(row.data(), scales, block, out.data() + BytesOf(done + r, block.cols));
            }
        }
        return {};
    }

  private:
    static bool IsNan(std::byte code) { return (code & std::byte{0x7f}) == std::byte{0x7f}; }
    void PutRow(const std::byte* codes, const BlockScales::Row& scales, const Block& block,
                std::byte* out) const {
        for (int64_t c = 0; c < block.cols; c += kBlock) {
            const float scale = scales_.Of(scales, block, block.col + c);
            std::memcpy(out, &scale, sizeof scale);
            std::memcpy(out + sizeof scale, codes + c, kBlock);
            out += Info(DType::kFP8).block_bytes;
        }
    }

    ByteRows codes_;
    BlockScales scales_;
};

// E2M1 codes, two per byte, the first in the low bits, as F32.
class E2m1Matrix final : public Matrix {
  public:
    E2m1Matrix(const ByteRows& codes, int64_t rows)
        : Matrix(DType::kF32, rows, codes.row_bytes * 2), codes_(codes) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        const int64_t first = block.col / 2, end = (block.col + block.cols + 1) / 2;
        std::vector<std::byte> read(static_cast<size_t>(block.rows * (end - first)));
        WEFT_TRY(codes_.Read({block.row, block.rows, first, end - first}, read));
        for (int64_t r = 0; r < block.rows; ++r) {
            for (int64_t c = block.col; c < block.col + block.cols; ++c) {
                const auto byte = std::to_integer<unsigned>(
                    read[static_cast<size_t>(r * (end - first) + c / 2 - first)]);
                const float value = kE2m1[byte >> c % 2 * 4 & 15];
                std::memcpy(out.data(), &value, sizeof value);
                out = out.subspan(sizeof value);
            }
        }
        return {};
    }

  private:
    ByteRows codes_;
};

// E2M1 codes with E4M3 scales per 16 columns, as blocks of 64.
class Nvfp4Matrix final : public Matrix {
  public:
    Nvfp4Matrix(const ByteRows& codes, const ByteRows& scales, int64_t rows, int64_t piece_rows,
                TensorScale all)
        : Matrix(DType::kNVFP4, rows, codes.row_bytes * 2),
          codes_(codes),
          scales_(scales),
          piece_rows_(piece_rows),
          all_(std::move(all)) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        int64_t piece = -1;
        float scale = 1;
        constexpr int64_t kMostBytes = 1 << 20;
        const int64_t most = std::max<int64_t>(1, kMostBytes / block.cols);
        std::vector<std::byte> codes, scales;
        for (int64_t done = 0; done < block.rows; done += most) {
            const int64_t row = block.row + done, rows = std::min(most, block.rows - done);
            codes.resize(static_cast<size_t>(rows * block.cols / 2));
            scales.resize(static_cast<size_t>(rows * block.cols / kNvScaleElements));
            WEFT_TRY(codes_.Read({row, rows, block.col / 2, block.cols / 2}, codes));
            WEFT_TRY(scales_.Read(
                {row, rows, block.col / kNvScaleElements, block.cols / kNvScaleElements}, scales));
            const int64_t blocks = block.cols / kNvBlock;  // per row
            for (int64_t b = 0; b < rows * blocks; ++b) {
                const auto at = static_cast<size_t>(b);
                if (const int64_t now = (row + b / blocks) / piece_rows_; now != piece) {
                    piece = now;
                    WEFT_ASSIGN(const float all, all_.Read(piece));
                    scale = all_.Of(1.0f, all);
                }
                WEFT_TRY(Put(codes.data() + at * 32, scales.data() + at * 4, scale, out.data()));
                out = out.subspan(kNvBlockBytes);
            }
        }
        return {};
    }

  private:
    static Status Put(const std::byte* codes, const std::byte* scales, float scale,
                      std::byte* out) {
        std::array<uint8_t, 64> own;
        std::array<uint8_t, 4> parts;
        for (size_t i = 0; i < own.size(); ++i) {
            own[i] = std::to_integer<uint8_t>(codes[i / 2] >> i % 2 * 4 & std::byte{15});
        }
        std::memcpy(parts.data(), scales, parts.size());
        return PutNvBlock(own, parts, scale, out);
    }

    ByteRows codes_, scales_;
    int64_t piece_rows_;
    TensorScale all_;
};

// A matrix times one scale per column, as BF16.
class ColumnScaledMatrix final : public Matrix {
  public:
    ColumnScaledMatrix(MatrixPtr values, MatrixPtr scales)
        : Matrix(DType::kBF16, values->rows(), values->cols()),
          values_(Converted(std::move(values), DType::kF32)),
          scales_(std::move(scales)) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        std::vector<float> scales(static_cast<size_t>(block.cols)), row(scales);
        WEFT_TRY(scales_->Read({0, 1, block.col, block.cols},
                               std::as_writable_bytes(std::span(scales))));
        for (const float scale : scales) WEFT_TRY(CheckScale(scale));
        for (int64_t r = 0; r < block.rows; ++r) {
            WEFT_TRY(values_->Read({block.row + r, 1, block.col, block.cols},
                                   std::as_writable_bytes(std::span(row))));
            for (size_t c = 0; c < row.size(); ++c) {
                const uint16_t half = F32ToBF16(row[c] * scales[c]);
                std::memcpy(out.data(), &half, sizeof half);
                out = out.subspan(sizeof half);
            }
        }
        return {};
    }

  private:
    MatrixPtr values_, scales_;
};

int64_t ElementsOf(const SafeTensor& tensor) {
    return static_cast<int64_t>(tensor.bytes / SafeTypeBytes(tensor.type));
}

// Whether the scales have the shape [rows, cols], ignoring dims of 1.
bool AreRowsOf(const SafeTensor& scales, int64_t rows, int64_t cols) {
    if (ElementsOf(scales) != rows * cols) return false;
    if (rows == 1 || cols == 1) return true;
    std::vector<int64_t> dims = scales.shape;
    std::erase(dims, 1);
    return !dims.empty() && dims.back() == cols;
}

bool IsE8m0(SafeType type) {
    return type == SafeType::kU8 || type == SafeType::kF8E8M0;
}

// The product of all dims but the last; 0: less than two dims.
int64_t RowsOf(const SafeTensor& tensor) {
    if (tensor.shape.size() < 2) return 0;
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
    return rows;
}

}  // namespace

Result<MatrixPtr> LinearMaker::Single(const SafeTensor* tensor, const char* name) const {
    if (tensor == nullptr) return Corrupt("has no {}", name);
    const int64_t count = tensor->bytes == sizeof(float) ? 1 : parts_.pieces;
    if (tensor->type != SafeType::kF32 ||
        tensor->bytes != static_cast<uint64_t>(count) * sizeof(float)) {
        return Corrupt("has a {} of {} and {} bytes; expected {} F32", name,
                       SafeTypeName(tensor->type), tensor->bytes,
                       count == 1 ? "one" : std::to_string(count));
    }
    return FromFile(files_.file(*tensor), tensor->offset, DType::kF32, count, 1);
}

Result<MatrixPtr> LinearMaker::Scales(const SafeTensor& tensor, int64_t rows, int64_t cols) const {
    const ByteRows bytes{&files_.file(tensor), tensor.offset, cols};
    if (IsE8m0(tensor.type)) {
        return MatrixPtr(std::make_unique<TableMatrix>(bytes, kE8m0, rows));
    }
    if (tensor.type == SafeType::kF8E4M3) {
        return MatrixPtr(std::make_unique<TableMatrix>(bytes, kE4m3, rows));
    }
    WEFT_ASSIGN(const DType dtype, TypeOf(tensor, "scale", true));
    return Converted(FromFile(files_.file(tensor), tensor.offset, dtype, rows, cols), DType::kF32);
}

Result<MatrixPtr> LinearMaker::Fp8Rows(const SafeTensor& weight, int64_t rows, int64_t cols,
                                       const SafeTensor& scales, int64_t block_rows,
                                       int64_t block_cols, int64_t piece_rows) const {
    const int64_t scale_rows = rows / piece_rows * ((piece_rows + block_rows - 1) / block_rows);
    const int64_t scale_cols = (cols + block_cols - 1) / block_cols;
    if (!AreRowsOf(scales, scale_rows, scale_cols)) {
        return Corrupt("has {} scales of shape [{}]; expected {} x {}", ElementsOf(scales),
                       fmt::join(scales.shape, ", "), scale_rows, scale_cols);
    }
    WEFT_ASSIGN(MatrixPtr matrix, Scales(scales, scale_rows, scale_cols));
    const ByteRows bytes{&files_.file(weight), weight.offset, cols};
    BlockScales blocks(std::move(matrix), {block_rows, block_cols, piece_rows}, TensorScale{});
    const bool whole = block_cols >= cols || block_cols % Fp8Matrix::kBlock == 0;
    if (whole && cols % Fp8Matrix::kBlock == 0) {
        return MatrixPtr(std::make_unique<Fp8Matrix>(bytes, std::move(blocks), rows));
    }
    return MatrixPtr(std::make_unique<ScaledMatrix>(
        std::make_unique<TableMatrix>(bytes, kE4m3, rows, true), std::move(blocks)));
}

// Scales per block, per row ([out, 1]), per group of a row, or one for all.
Result<MatrixPtr> LinearMaker::MakeFp8() const {
    WEFT_TRY(NeedMatrix(parts_.weight, "weight"));
    const int64_t rows = RowsOf(*parts_.weight), cols = parts_.weight->shape.back();
    const SafeTensor* scales = parts_.scale_inv != nullptr ? parts_.scale_inv : parts_.scale;
    if (scales == nullptr) {
        return Corrupt("is F8_E4M3 without {}",
                       q_.method == Method::kFp8 || q_.method == Method::kNone ? "weight_scale_inv"
                                                                               : "weight_scale");
    }
    if (rows < 1 || cols < 1) return Corrupt("is empty");
    if (rows % parts_.pieces != 0) {
        return Corrupt("has {} rows, which {} parts do not divide", rows, parts_.pieces);
    }
    int64_t piece_rows = rows / parts_.pieces;
    int64_t block_rows = q_.block_rows, block_cols = q_.block_cols;
    if (block_rows == 0) {
        if (ElementsOf(*scales) == 1) piece_rows = rows;
        block_rows = ElementsOf(*scales) == rows / piece_rows ? piece_rows : 1;
        block_cols = q_.group == 0 ? cols : q_.group;
    }
    const bool of_model_opt = q_.method == Method::kModelOpt && RowsOf(*scales) > 0;
    if (of_model_opt && IsE8m0(scales->type)) {
        block_cols = 32;  // MXFP8
    } else if (of_model_opt && scales->shape.size() == 4) {
        block_rows = block_cols = 128;  // FP8_PB_WO: [out / 128, 1, in / 128, 1]
    }
    return Fp8Rows(*parts_.weight, rows, cols, *scales, block_rows, block_cols, piece_rows);
}

Result<MatrixPtr> LinearMaker::Mxfp4Rows(const SafeTensor& codes, const SafeTensor& scales,
                                         int64_t rows, int64_t cols) const {
    if (cols % 32 != 0 || !AreRowsOf(scales, rows, cols / 32) || !IsE8m0(scales.type)) {
        return Corrupt("has {} scales of {}; expected U8 [{}, {} / 32]", ElementsOf(scales),
                       SafeTypeName(scales.type), rows, cols);
    }
    return Mxfp4FromFiles({&files_.file(codes), codes.offset, cols / 2},
                          {&files_.file(scales), scales.offset, cols / 32}, rows, cols);
}

Result<MatrixPtr> LinearMaker::MakeNvfp4(const SafeTensor& codes, const SafeTensor& scales,
                                         int64_t rows, int64_t cols) const {
    if (cols % kNvScaleElements != 0 || !AreRowsOf(scales, rows, cols / kNvScaleElements)) {
        return Corrupt("has {} scales; expected [{}, {} / {}]", ElementsOf(scales), rows, cols,
                       kNvScaleElements);
    }
    const SafeType type = q_.method == Method::kMlx ? SafeType::kU8 : SafeType::kF8E4M3;
    if (scales.type != type) {
        return Corrupt("has scales of {}; expected {}", SafeTypeName(scales.type),
                       SafeTypeName(type));
    }
    TensorScale all;
    if (q_.method == Method::kCompressed) {
        WEFT_ASSIGN(all.number, Single(parts_.global_scale, "weight_global_scale"));
        all.divides = true;
    } else if (q_.method == Method::kModelOpt) {
        WEFT_ASSIGN(all.number, Single(parts_.scale_2, "weight_scale_2"));
    }
    if (rows % parts_.pieces != 0) {
        return Corrupt("has {} rows, which {} parts do not divide", rows, parts_.pieces);
    }
    const int64_t piece_rows = rows / parts_.pieces;
    const ByteRows code_rows{&files_.file(codes), codes.offset, cols / 2};
    const ByteRows scale_rows{&files_.file(scales), scales.offset, cols / kNvScaleElements};
    if (cols % kNvBlock == 0) {
        return MatrixPtr(
            std::make_unique<Nvfp4Matrix>(code_rows, scale_rows, rows, piece_rows, std::move(all)));
    }
    return MatrixPtr(std::make_unique<ScaledMatrix>(
        std::make_unique<E2m1Matrix>(code_rows, rows),
        BlockScales(std::make_unique<TableMatrix>(scale_rows, kE4m3, rows),
                    {1, kNvScaleElements, piece_rows}, std::move(all))));
}

Result<MatrixPtr> LinearMaker::MakeFp4(const SafeTensor& codes) const {
    WEFT_TRY(NeedMatrix(&codes, "weight of U8"));
    if (parts_.scale == nullptr) return Corrupt("has 4 bits, but no weight_scale");
    const int64_t rows = RowsOf(codes), cols = codes.shape.back() * 2;
    if (rows < 1 || cols < 1) return Corrupt("is empty");
    if (parts_.zero_point != nullptr) {
        return Corrupt("has a weight_zero_point, which 4-bit floats do not have");
    }
    if (parts_.scale->type == SafeType::kF8E4M3) {
        return MakeNvfp4(codes, *parts_.scale, rows, cols);
    }
    return Mxfp4Rows(codes, *parts_.scale, rows, cols);
}

Result<MatrixPtr> LinearMaker::WithColumnScales(MatrixPtr matrix) const {
    const SafeTensor& scales = *parts_.column_scale;
    const int64_t cols = matrix->cols();
    if (ElementsOf(scales) != cols) {
        return Corrupt("has a pre_quant_scale of {} elements; expected {}", ElementsOf(scales),
                       cols);
    }
    WEFT_ASSIGN(const DType dtype, TypeOf(scales, "pre_quant_scale", true));
    MatrixPtr row =
        Converted(FromFile(files_.file(scales), scales.offset, dtype, 1, cols), DType::kF32);
    return MatrixPtr(std::make_unique<ColumnScaledMatrix>(std::move(matrix), std::move(row)));
}

}  // namespace weft::model_files::hf
