#include "model_files/hf/packed.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/half.h"
#include "tensor/quant.h"

namespace weft::model_files::hf {
namespace {

constexpr int64_t kBlock = 32;  // columns of a W4 or W8 block

// Words of a 2-D int32 tensor: those of rows [row, ...) and columns [col, col + cols).
struct Words {
    std::vector<uint32_t> data;
    int64_t row = 0, col = 0, cols = 0;
    uint32_t at(int64_t r, int64_t c) const {
        return data[static_cast<size_t>((r - row) * cols + c - col)];
    }
};

Result<Words> ReadWords(const Matrix& matrix, const Block& block) {
    Words words{std::vector<uint32_t>(static_cast<size_t>(block.rows * block.cols)), block.row,
                block.col, block.cols};
    WEFT_TRY(matrix.Read(block, std::as_writable_bytes(std::span(words.data))));
    return words;
}

// Scale and zero point of each row and group of a part of a matrix: [rows][groups].
struct Groups {
    int64_t first = 0, count = 0;
    std::vector<float> scales;
    std::vector<int> zeros;
};

// A matrix of packed integers. What differs from one layout to the next is where a code stands.
class PackedMatrix : public Matrix {
  public:
    struct Shape {
        int64_t out, in, group, groups;
        int bits;
        DType dtype;  // kW4, kW8, or of the values
    };
    PackedMatrix(const Shape& shape, MatrixPtr g_idx, bool any_order)
        : Matrix(shape.dtype, shape.out, shape.in),
          shape_(shape),
          g_idx_(std::move(g_idx)),
          any_order_(any_order) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        constexpr int64_t kMostCodes = 4 << 20;  // at a time
        const int64_t most = std::max<int64_t>(16, kMostCodes / std::max<int64_t>(1, block.cols));
        WEFT_ASSIGN(const std::vector<int32_t> group_of, GroupOf(block));
        std::vector<uint8_t> codes;
        for (int64_t done = 0; done < block.rows; done += most) {
            const int64_t rows = std::min(most, block.rows - done);
            const Block part{block.row + done, rows, block.col, block.cols};
            codes.resize(static_cast<size_t>(rows * block.cols));
            WEFT_TRY(Unpack(part, codes));
            const auto [least, highest] = std::ranges::minmax(group_of);
            Groups groups{least, highest - least + 1, {}, {}};
            groups.scales.resize(static_cast<size_t>(rows * groups.count));
            groups.zeros.resize(groups.scales.size());
            WEFT_TRY(ReadGroups(part, groups));
            const auto to = out.subspan(BytesOf(done, block.cols), BytesOf(rows, block.cols));
            Write(part, codes, groups, group_of, to);
        }
        return {};
    }

  protected:
    const Shape& shape() const { return shape_; }
    int64_t per_word() const { return 32 / shape_.bits; }
    uint32_t mask() const { return (1u << shape_.bits) - 1; }
    // The words that hold elements [begin, begin + count) of a packed dimension.
    std::pair<int64_t, int64_t> WordsOf(int64_t begin, int64_t count) const {
        const int64_t first = begin / per_word();
        return {first, (begin + count + per_word() - 1) / per_word() - first};
    }
    uint32_t Code(uint32_t word, int64_t element) const {
        return word >> element % per_word() * shape_.bits & mask();
    }
    // codes: [rows][cols].
    virtual Status Unpack(const Block& block, std::span<uint8_t> codes) const = 0;
    virtual Status ReadGroups(const Block& block, Groups& groups) const = 0;

    // Floats of a [groups, out] matrix, turned to [rows][groups].
    Status ReadTurned(const Matrix& scales, const Block& block, Groups& groups) const {
        std::vector<float> read(groups.scales.size());
        WEFT_TRY(scales.Read({groups.first, groups.count, block.row, block.rows},
                             std::as_writable_bytes(std::span(read))));
        for (int64_t r = 0; r < block.rows; ++r) {
            for (int64_t g = 0; g < groups.count; ++g) {
                groups.scales[static_cast<size_t>(r * groups.count + g)] =
                    read[static_cast<size_t>(g * block.rows + r)];
            }
        }
        return {};
    }

  private:
    // The group of each column of the block.
    Result<std::vector<int32_t>> GroupOf(const Block& block) const {
        std::vector<int32_t> group_of(static_cast<size_t>(block.cols));
        if (g_idx_ != nullptr) {
            WEFT_TRY(g_idx_->Read({0, 1, block.col, block.cols},
                                  std::as_writable_bytes(std::span(group_of))));
        }
        for (int64_t c = 0; c < block.cols; ++c) {
            int32_t& group = group_of[static_cast<size_t>(c)];
            const auto plain = static_cast<int32_t>((block.col + c) / shape_.group);
            if (g_idx_ == nullptr) group = plain;
            const bool good = any_order_ ? group >= 0 && group < shape_.groups : group == plain;
            if (good) continue;
            return MakeError(
                ErrorCode::kCorrupt, "g_idx gives column {} to group {}; expected {}",
                block.col + c, group,
                any_order_ ? fmt::format("0 to {}", shape_.groups - 1) : std::to_string(plain));
        }
        return group_of;
    }

    void Write(const Block& block, std::span<const uint8_t> codes, const Groups& groups,
               std::span<const int32_t> group_of, std::span<std::byte> out) const {
        const auto cols = static_cast<size_t>(block.cols);
        for (int64_t r = 0; r < block.rows; ++r) {
            const auto row = codes.subspan(static_cast<size_t>(r) * cols, cols);
            const size_t at = static_cast<size_t>(r * groups.count);
            const float* scales = groups.scales.data() + at - groups.first;
            const int* zeros = groups.zeros.data() + at - groups.first;
            const auto to = out.subspan(BytesOf(r, block.cols), BytesOf(1, block.cols));
            if (Info(dtype()).quantized) {
                WriteBlocks(row, scales, zeros, group_of, to.data());
            } else {
                WriteValues(row, scales, zeros, group_of, to);
            }
        }
    }

    void WriteBlocks(std::span<const uint8_t> codes, const float* scales, const int* zeros,
                     std::span<const int32_t> group_of, std::byte* out) const {
        for (size_t c = 0; c < codes.size(); c += kBlock) {
            const int32_t group = group_of[c];
            const uint32_t head =
                std::bit_cast<uint32_t>(scales[group]) | static_cast<uint32_t>(zeros[group]);
            std::memcpy(out, &head, sizeof head);
            out += sizeof head;
            const uint8_t* code = codes.data() + c;
            if (dtype() == DType::kW8) {
                std::memcpy(out, code, kBlock);
                out += kBlock;
                continue;
            }
            for (int i = 0; i < 16; ++i) {
                out[i] = static_cast<std::byte>(code[i] | code[i + 16] << 4);
            }
            out += 16;
        }
    }

    void WriteValues(std::span<const uint8_t> codes, const float* scales, const int* zeros,
                     std::span<const int32_t> group_of, std::span<std::byte> out) const {
        std::vector<float> values(codes.size());
        for (size_t c = 0; c < codes.size(); ++c) {
            const int32_t group = group_of[c];
            values[c] = static_cast<float>(codes[c] - zeros[group]) * scales[group];
        }
        QuantizeRow(dtype(), values, out);
    }

    Shape shape_;
    MatrixPtr g_idx_;  // [1, in], I32; nullptr: groups stand one after another
    bool any_order_;
};

class AwqMatrix final : public PackedMatrix {
  public:
    AwqMatrix(const Shape& shape, MatrixPtr qweight, MatrixPtr qzeros, MatrixPtr scales)
        : PackedMatrix(shape, nullptr, false),
          qweight_(std::move(qweight)),
          qzeros_(std::move(qzeros)),
          scales_(std::move(scales)) {}

  private:
    // The nibble of a word that holds output 8 n + i: the order 0 2 4 6 1 3 5 7, inverted.
    static int64_t NibbleOf(int64_t output) {
        constexpr int64_t kNibbles[8] = {0, 4, 1, 5, 2, 6, 3, 7};
        return kNibbles[output % 8];
    }
    Status Unpack(const Block& block, std::span<uint8_t> codes) const override {
        const auto [first, count] = WordsOf(block.row, block.rows);
        WEFT_ASSIGN(const Words words, ReadWords(*qweight_, {block.col, block.cols, first, count}));
        for (int64_t r = 0; r < block.rows; ++r) {
            const int64_t output = block.row + r, nibble = NibbleOf(output);
            uint8_t* to = codes.data() + r * block.cols;
            for (int64_t c = 0; c < block.cols; ++c) {
                const uint32_t word = words.at(block.col + c, output / 8);
                to[c] = static_cast<uint8_t>(Code(word, nibble));
            }
        }
        return {};
    }
    Status ReadGroups(const Block& block, Groups& groups) const override {
        WEFT_TRY(ReadTurned(*scales_, block, groups));
        const auto [first, count] = WordsOf(block.row, block.rows);
        WEFT_ASSIGN(const Words words,
                    ReadWords(*qzeros_, {groups.first, groups.count, first, count}));
        for (int64_t r = 0; r < block.rows; ++r) {
            const int64_t output = block.row + r;
            for (int64_t g = 0; g < groups.count; ++g) {
                groups.zeros[static_cast<size_t>(r * groups.count + g)] = static_cast<int>(
                    Code(words.at(groups.first + g, output / 8), NibbleOf(output)));
            }
        }
        return {};
    }
    MatrixPtr qweight_, qzeros_, scales_;
};

class GptqMatrix final : public PackedMatrix {
  public:
    GptqMatrix(const Shape& shape, MatrixPtr qweight, MatrixPtr qzeros, MatrixPtr scales,
               MatrixPtr g_idx, const Quantization& quantization)
        : PackedMatrix(shape, std::move(g_idx), quantization.any_order),
          qweight_(std::move(qweight)),
          qzeros_(std::move(qzeros)),
          scales_(std::move(scales)),
          zero_add_(quantization.zero_plus_one ? 1 : 0) {}

  private:
    Status Unpack(const Block& block, std::span<uint8_t> codes) const override {
        const auto [first, count] = WordsOf(block.col, block.cols);
        WEFT_ASSIGN(const Words words, ReadWords(*qweight_, {first, count, block.row, block.rows}));
        for (int64_t r = 0; r < block.rows; ++r) {
            uint8_t* to = codes.data() + r * block.cols;
            for (int64_t c = 0; c < block.cols; ++c) {
                const int64_t column = block.col + c;
                to[c] = static_cast<uint8_t>(
                    Code(words.at(column / per_word(), block.row + r), column));
            }
        }
        return {};
    }
    Status ReadGroups(const Block& block, Groups& groups) const override {
        WEFT_TRY(ReadTurned(*scales_, block, groups));
        const auto [first, count] = WordsOf(block.row, block.rows);
        WEFT_ASSIGN(const Words words,
                    ReadWords(*qzeros_, {groups.first, groups.count, first, count}));
        for (int64_t r = 0; r < block.rows; ++r) {
            const int64_t output = block.row + r;
            for (int64_t g = 0; g < groups.count; ++g) {
                const uint32_t word = words.at(groups.first + g, output / per_word());
                // 15 + 1 is 16, which a field of four bits could not hold.
                groups.zeros[static_cast<size_t>(r * groups.count + g)] =
                    static_cast<int>(Code(word, output)) + zero_add_;
            }
        }
        return {};
    }
    MatrixPtr qweight_, qzeros_, scales_;
    int zero_add_;
};

// compressed-tensors' pack-quantized.
class RowPackedMatrix final : public PackedMatrix {
  public:
    RowPackedMatrix(const Shape& shape, MatrixPtr packed, MatrixPtr scale, MatrixPtr zero_point,
                    MatrixPtr g_idx, bool any_order)
        : PackedMatrix(shape, std::move(g_idx), any_order),
          packed_(std::move(packed)),
          scale_(std::move(scale)),
          zero_point_(std::move(zero_point)) {}

  private:
    Status Unpack(const Block& block, std::span<uint8_t> codes) const override {
        const auto [first, count] = WordsOf(block.col, block.cols);
        WEFT_ASSIGN(const Words words, ReadWords(*packed_, {block.row, block.rows, first, count}));
        for (int64_t r = 0; r < block.rows; ++r) {
            uint8_t* to = codes.data() + r * block.cols;
            for (int64_t c = 0; c < block.cols; ++c) {
                const int64_t column = block.col + c;
                to[c] = static_cast<uint8_t>(
                    Code(words.at(block.row + r, column / per_word()), column));
            }
        }
        return {};
    }
    Status ReadGroups(const Block& block, Groups& groups) const override {
        WEFT_TRY(scale_->Read({block.row, block.rows, groups.first, groups.count},
                              std::as_writable_bytes(std::span(groups.scales))));
        std::ranges::fill(groups.zeros, 1 << (shape().bits - 1));
        if (zero_point_ == nullptr) return {};
        const auto [first, count] = WordsOf(block.row, block.rows);
        WEFT_ASSIGN(const Words words,
                    ReadWords(*zero_point_, {first, count, groups.first, groups.count}));
        for (int64_t r = 0; r < block.rows; ++r) {
            const int64_t output = block.row + r;
            for (int64_t g = 0; g < groups.count; ++g) {
                groups.zeros[static_cast<size_t>(r * groups.count + g)] =
                    static_cast<int>(Code(words.at(output / per_word(), groups.first + g), output));
            }
        }
        return {};
    }
    MatrixPtr packed_, scale_, zero_point_;
};

// ---- FP8 ----------------------------------------------------------------------------------------

// E4M3 of OCP's 8-bit formats: no infinities, S.1111.111 is NaN.
float F8ToF32(uint8_t bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
    if (exponent == 15 && mantissa == 7) return NAN;
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -9);
    return sign * std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
}

class Fp8Matrix final : public Matrix {
  public:
    // scales: F32, one for each block_rows x block_cols.
    Fp8Matrix(const WeightFile& file, uint64_t offset, int64_t rows, int64_t cols, MatrixPtr scales,
              int64_t block_rows, int64_t block_cols)
        : Matrix(DType::kBF16, rows, cols),
          file_(file),
          offset_(offset),
          scales_(std::move(scales)),
          block_rows_(block_rows),
          block_cols_(block_cols) {
        for (int i = 0; i < 256; ++i) values_[i] = F8ToF32(static_cast<uint8_t>(i));
    }

    Status Read(const Block& block, std::span<std::byte> out) const override {
        std::vector<std::byte> bytes(static_cast<size_t>(block.cols));
        std::vector<float> scales;
        int64_t scale_row = -1;
        const int64_t first = block.col / block_cols_;
        const int64_t count = (block.col + block.cols - 1) / block_cols_ - first + 1;
        for (int64_t row = block.row; row < block.row + block.rows; ++row) {
            if (row / block_rows_ != scale_row) {
                scale_row = row / block_rows_;
                scales.resize(static_cast<size_t>(count));
                WEFT_TRY(scales_->Read({scale_row, 1, first, count},
                                       std::as_writable_bytes(std::span(scales))));
            }
            WEFT_TRY(
                file_.ReadAt(offset_ + static_cast<uint64_t>(row * cols() + block.col), bytes));
            for (int64_t c = 0; c < block.cols; ++c) {
                const float value = values_[std::to_integer<size_t>(bytes[static_cast<size_t>(c)])];
                const int64_t group = (block.col + c) / block_cols_ - first;
                const uint16_t half = F32ToBF16(value * scales[static_cast<size_t>(group)]);
                std::memcpy(out.data(), &half, sizeof half);
                out = out.subspan(sizeof half);
            }
        }
        return {};
    }

  private:
    const WeightFile& file_;
    uint64_t offset_;
    MatrixPtr scales_;
    int64_t block_rows_, block_cols_;
    float values_[256];
};

// ---- From tensors to matrices -------------------------------------------------------------------

class Maker {
  public:
    Maker(const LinearParts& parts, const Quantization& quantization, const TensorFiles& files,
          const std::string& module, const std::string& folder)
        : parts_(parts), q_(quantization), files_(files), module_(module), folder_(folder) {}

    Result<MatrixPtr> Make() {
        if (parts_.weight != nullptr) return MakeFp8();
        if (parts_.packed != nullptr && q_.method == Method::kCompressed) return MakeRowPacked();
        if (parts_.qweight != nullptr && q_.method == Method::kAwq) return MakeAwq();
        if (parts_.qweight != nullptr && q_.method == Method::kGptq) return MakeGptq();
        return Corrupt("is packed, but config.json's quantization_config doesn't say so");
    }

  private:
    template <typename... Args>
    Error Corrupt(fmt::format_string<Args...> format, Args&&... args) const {
        return MakeError(ErrorCode::kCorrupt, "{}: '{}' {}", folder_, Shown(module_),
                         fmt::format(format, std::forward<Args>(args)...));
    }

    // A 2-D tensor of int32 (`floats`: of F16, BF16 or F32, given as F32) of that shape.
    Result<MatrixPtr> Part(const SafeTensor* tensor, const char* name, int64_t rows, int64_t cols,
                           bool floats) const {
        if (tensor == nullptr) return Corrupt("has no {}", name);
        const std::vector<int64_t> expected = {rows, cols};
        if (tensor->shape != expected) {
            return Corrupt("has a {} of {} dims and {} bytes; expected [{}, {}]", name,
                           tensor->shape.size(), tensor->bytes, rows, cols);
        }
        WEFT_ASSIGN(const DType dtype, TypeOf(*tensor, name, floats));
        MatrixPtr matrix = FromFile(files_.file(*tensor), tensor->offset, dtype, rows, cols);
        return floats ? Converted(std::move(matrix), DType::kF32) : std::move(matrix);
    }

    Result<DType> TypeOf(const SafeTensor& tensor, const char* name, bool floats) const {
        if (!floats && tensor.type == SafeType::kI32) return DType::kI32;
        if (floats && tensor.type == SafeType::kF32) return DType::kF32;
        if (floats && tensor.type == SafeType::kF16) return DType::kF16;
        if (floats && tensor.type == SafeType::kBF16) return DType::kBF16;
        return Corrupt("has a {} of dtype {}; expected {}", name, SafeTypeName(tensor.type),
                       floats ? "F16, BF16 or F32" : "I32");
    }

    // What W4 and W8 cannot hold becomes values, in the scales' dtype.
    DType TargetType(const PackedMatrix::Shape& shape, SafeType scales) const {
        const bool blocks = !q_.any_order && shape.group % kBlock == 0 && shape.in % kBlock == 0;
        if (scales == SafeType::kF32) return DType::kF32;
        if (blocks) return shape.bits == 4 ? DType::kW4 : DType::kW8;
        return scales == SafeType::kF16 ? DType::kF16 : DType::kBF16;
    }

    // Rows, columns and groups of scales, which must be whole.
    Result<PackedMatrix::Shape> ShapeOf(int64_t out, int64_t in, int64_t groups,
                                        SafeType scales) const {
        const int64_t group = q_.group == 0 ? in : q_.group;
        if (in < 1 || out < 1 || groups < 1 || (!q_.any_order && in % group != 0) ||
            (in + group - 1) / group != groups) {
            return Corrupt("has {} columns in groups of {}, but {} groups of scales", in, group,
                           groups);
        }
        PackedMatrix::Shape shape{out, in, group, groups, q_.bits, DType::kW4};
        shape.dtype = TargetType(shape, scales);
        return shape;
    }

    // The columns' groups: kI32 [in].
    Result<MatrixPtr> GroupIndex(const SafeTensor* tensor, int64_t in) const {
        if (tensor == nullptr) {
            if (q_.any_order) return Corrupt("has no g_idx, but its columns are out of order");
            return MatrixPtr();
        }
        const std::vector<int64_t> expected = {in};
        if (tensor->type != SafeType::kI32 || tensor->shape != expected) {
            return Corrupt("has a g_idx of {} bytes; expected {} x I32", tensor->bytes, in);
        }
        return FromFile(files_.file(*tensor), tensor->offset, DType::kI32, 1, in);
    }

    // Dims of a 2-D tensor.
    Status NeedMatrix(const SafeTensor* tensor, const char* name) const {
        if (tensor == nullptr) return Corrupt("has no {}", name);
        if (tensor->shape.size() == 2) return {};
        return Corrupt("has a {} of {} dims; expected 2", name, tensor->shape.size());
    }

    Result<MatrixPtr> MakeAwq() const;
    Result<MatrixPtr> MakeGptq() const;
    Result<MatrixPtr> MakeRowPacked() const;
    Result<MatrixPtr> MakeFp8() const;

    const LinearParts& parts_;
    const Quantization& q_;
    const TensorFiles& files_;
    const std::string& module_;
    const std::string& folder_;
};

Result<MatrixPtr> Maker::MakeAwq() const {
    WEFT_TRY(NeedMatrix(parts_.qweight, "qweight"));
    WEFT_TRY(NeedMatrix(parts_.scales, "scales"));
    const int64_t in = parts_.qweight->shape[0], out = parts_.scales->shape[1];
    const int64_t groups = parts_.scales->shape[0];
    if (out % 8 != 0) return Corrupt("has {} outputs, which are no whole words of 8", out);
    WEFT_ASSIGN(const PackedMatrix::Shape shape, ShapeOf(out, in, groups, parts_.scales->type));
    WEFT_ASSIGN(MatrixPtr qweight, Part(parts_.qweight, "qweight", in, out / 8, false));
    WEFT_ASSIGN(MatrixPtr qzeros, Part(parts_.qzeros, "qzeros", groups, out / 8, false));
    WEFT_ASSIGN(MatrixPtr scales, Part(parts_.scales, "scales", groups, out, true));
    return MatrixPtr(std::make_unique<AwqMatrix>(shape, std::move(qweight), std::move(qzeros),
                                                 std::move(scales)));
}

Result<MatrixPtr> Maker::MakeGptq() const {
    WEFT_TRY(NeedMatrix(parts_.qweight, "qweight"));
    WEFT_TRY(NeedMatrix(parts_.scales, "scales"));
    const int64_t per_word = 32 / q_.bits;
    const int64_t in = parts_.qweight->shape[0] * per_word, out = parts_.qweight->shape[1];
    const int64_t groups = parts_.scales->shape[0];
    if (out % per_word != 0) return Corrupt("has {} outputs, which are no whole words", out);
    WEFT_ASSIGN(const PackedMatrix::Shape shape, ShapeOf(out, in, groups, parts_.scales->type));
    WEFT_ASSIGN(MatrixPtr qweight, Part(parts_.qweight, "qweight", in / per_word, out, false));
    WEFT_ASSIGN(MatrixPtr qzeros, Part(parts_.qzeros, "qzeros", groups, out / per_word, false));
    WEFT_ASSIGN(MatrixPtr scales, Part(parts_.scales, "scales", groups, out, true));
    WEFT_ASSIGN(MatrixPtr g_idx, GroupIndex(parts_.g_idx, in));
    return MatrixPtr(std::make_unique<GptqMatrix>(shape, std::move(qweight), std::move(qzeros),
                                                  std::move(scales), std::move(g_idx), q_));
}

Result<MatrixPtr> Maker::MakeRowPacked() const {
    WEFT_TRY(NeedMatrix(parts_.packed, "weight_packed"));
    WEFT_TRY(NeedMatrix(parts_.scale, "weight_scale"));
    if (parts_.shape == nullptr || parts_.shape->type != SafeType::kI64 ||
        parts_.shape->bytes != 16) {
        return Corrupt("has no weight_shape of two I64");
    }
    int64_t dims[2];
    WEFT_TRY(files_.file(*parts_.shape)
                 .ReadAt(parts_.shape->offset, std::as_writable_bytes(std::span(dims))));
    const auto [out, in] = dims;
    const int64_t per_word = 32 / q_.bits, groups = parts_.scale->shape[1];
    if (out < 1 || in < 1 || out > 1ll << 40 || in > 1ll << 40) {
        return Corrupt("has a weight_shape of [{}, {}]", out, in);
    }
    WEFT_ASSIGN(const PackedMatrix::Shape shape, ShapeOf(out, in, groups, parts_.scale->type));
    WEFT_ASSIGN(MatrixPtr packed,
                Part(parts_.packed, "weight_packed", out, (in + per_word - 1) / per_word, false));
    WEFT_ASSIGN(MatrixPtr scale, Part(parts_.scale, "weight_scale", out, groups, true));
    MatrixPtr zero_point;
    if (parts_.zero_point != nullptr) {
        WEFT_ASSIGN(zero_point, Part(parts_.zero_point, "weight_zero_point",
                                     (out + per_word - 1) / per_word, groups, false));
    }
    WEFT_ASSIGN(MatrixPtr g_idx, GroupIndex(parts_.packed_g_idx, in));
    return MatrixPtr(std::make_unique<RowPackedMatrix>(shape, std::move(packed), std::move(scale),
                                                       std::move(zero_point), std::move(g_idx),
                                                       q_.any_order));
}

// Scales by block, by row ([out, 1]) or one for all.
Result<MatrixPtr> Maker::MakeFp8() const {
    WEFT_TRY(NeedMatrix(parts_.weight, "weight"));
    const int64_t rows = parts_.weight->shape[0], cols = parts_.weight->shape[1];
    const SafeTensor* tensor = parts_.scale_inv != nullptr ? parts_.scale_inv : parts_.scale;
    if (tensor == nullptr) return Corrupt("is F8_E4M3 without weight_scale_inv");
    if (rows < 1 || cols < 1) return Corrupt("is empty");
    int64_t block_rows = q_.block_rows, block_cols = q_.block_cols;
    const auto count = static_cast<int64_t>(tensor->bytes / SafeTypeBytes(tensor->type));
    if (block_rows == 0) {
        block_rows = count == 1 ? rows : 1;
        block_cols = cols;
    }
    const int64_t scale_rows = (rows + block_rows - 1) / block_rows;
    const int64_t scale_cols = (cols + block_cols - 1) / block_cols;
    if (count != scale_rows * scale_cols) {
        return Corrupt("has {} scales; expected {} x {}", count, scale_rows, scale_cols);
    }
    WEFT_ASSIGN(const DType dtype, TypeOf(*tensor, "scale", true));
    MatrixPtr scales = Converted(
        FromFile(files_.file(*tensor), tensor->offset, dtype, scale_rows, scale_cols), DType::kF32);
    return MatrixPtr(std::make_unique<Fp8Matrix>(files_.file(*parts_.weight), parts_.weight->offset,
                                                 rows, cols, std::move(scales), block_rows,
                                                 block_cols));
}

}  // namespace

Result<MatrixPtr> PackedLinear(const LinearParts& parts, const Quantization& quantization,
                               const TensorFiles& files, const std::string& module,
                               const std::string& folder) {
    return Maker(parts, quantization, files, module, folder).Make();
}

}  // namespace weft::model_files::hf
