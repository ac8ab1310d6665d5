#include "model_files/hf/packed.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "model_files/hf/linear_maker.h"
#include "tensor/quant.h"

namespace weft::model_files::hf {
namespace {

constexpr int64_t kBlock = 32;  // columns of a W4 or W8 block

// Words of a 2-D int32 tensor: rows [row, ...) and columns [col, col + cols).
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

// Scale and zero point by row and group, for a part of a matrix: [rows][groups].
struct Groups {
    int64_t first = 0, count = 0;
    std::vector<float> scales;
    std::vector<int> zeros;
};

// A matrix of packed integers. Derived classes define where each code is stored.
class PackedMatrix : public Matrix {
  public:
    struct Shape {
        int64_t out, in, group, groups;
        int bits;
        DType dtype;  // kW4, kW8, or the dtype of values
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
            for (const float scale : groups.scales) WEFT_TRY(CheckScale(scale));
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
    // The same for a stream of bits, in which a code of 3 bits may be in two words.
    std::pair<int64_t, int64_t> StreamWordsOf(int64_t begin, int64_t count) const {
        const int64_t first = begin * shape_.bits / 32;
        return {first, ((begin + count) * shape_.bits + 31) / 32 - first};
    }
    // word(i): the stream's word i.
    template <typename Word>
    uint32_t StreamCode(const Word& word, int64_t element) const {
        const int64_t bit = element * shape_.bits, at = bit / 32, shift = bit % 32;
        uint32_t code = word(at) >> shift;
        if (shift + shape_.bits > 32) code |= word(at + 1) << (32 - shift);
        return code & mask();
    }
    // codes: [rows][cols].
    virtual Status Unpack(const Block& block, std::span<uint8_t> codes) const = 0;
    virtual Status ReadGroups(const Block& block, Groups& groups) const = 0;

    // Reads floats of a [groups, out] matrix, transposed to [rows][groups].
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
    // The group of each of the block's columns.
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
    MatrixPtr g_idx_;  // [1, in], I32; nullptr: groups are contiguous
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
               MatrixPtr g_idx, const Scheme& scheme)
        : PackedMatrix(shape, std::move(g_idx), scheme.any_order),
          qweight_(std::move(qweight)),
          qzeros_(std::move(qzeros)),
          scales_(std::move(scales)),
          zero_add_(scheme.zero_plus_one ? 1u : 0u) {}

  private:
    Status Unpack(const Block& block, std::span<uint8_t> codes) const override {
        const auto [first, count] = StreamWordsOf(block.col, block.cols);
        WEFT_ASSIGN(const Words words, ReadWords(*qweight_, {first, count, block.row, block.rows}));
        for (int64_t r = 0; r < block.rows; ++r) {
            uint8_t* to = codes.data() + r * block.cols;
            const auto word = [&](int64_t at) { return words.at(at, block.row + r); };
            for (int64_t c = 0; c < block.cols; ++c) {
                to[c] = static_cast<uint8_t>(StreamCode(word, block.col + c));
            }
        }
        return {};
    }
    Status ReadGroups(const Block& block, Groups& groups) const override {
        WEFT_TRY(ReadTurned(*scales_, block, groups));
        const auto [first, count] = StreamWordsOf(block.row, block.rows);
        WEFT_ASSIGN(const Words words,
                    ReadWords(*qzeros_, {groups.first, groups.count, first, count}));
        for (int64_t r = 0; r < block.rows; ++r) {
            const int64_t output = block.row + r;
            for (int64_t g = 0; g < groups.count; ++g) {
                const auto word = [&](int64_t at) { return words.at(groups.first + g, at); };
                // The sum may be 16, which does not fit the 4-bit field. With 8 bits, 256 is 0,
                // as in GPTQModel: a W8 block has 8 bits for it.
                groups.zeros[static_cast<size_t>(r * groups.count + g)] =
                    static_cast<int>((StreamCode(word, output) + zero_add_) & 0xff);
            }
        }
        return {};
    }
    MatrixPtr qweight_, qzeros_, scales_;
    uint32_t zero_add_;
};

// pack-quantized of compressed-tensors.
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

// Signed 4-bit codes of ModelOpt: a byte has two rows of one column, the first in the low bits.
class RowPairsMatrix final : public PackedMatrix {
  public:
    RowPairsMatrix(const Shape& shape, ByteRows weight, MatrixPtr scale)
        : PackedMatrix(shape, nullptr, false), weight_(weight), scale_(std::move(scale)) {}

  private:
    Status Unpack(const Block& block, std::span<uint8_t> codes) const override {
        const int64_t first = block.row / 2, rows = (block.row + block.rows + 1) / 2 - first;
        std::vector<std::byte> bytes(static_cast<size_t>(rows * block.cols));
        WEFT_TRY(weight_.Read({first, rows, block.col, block.cols}, bytes));
        for (int64_t r = 0; r < block.rows; ++r) {
            const int64_t row = block.row + r;
            const std::byte* from = bytes.data() + (row / 2 - first) * block.cols;
            uint8_t* to = codes.data() + r * block.cols;
            for (int64_t c = 0; c < block.cols; ++c) {
                to[c] = std::to_integer<uint8_t>(from[c] >> row % 2 * 4 & std::byte{15}) ^ 8;
            }
        }
        return {};
    }
    Status ReadGroups(const Block& block, Groups& groups) const override {
        std::ranges::fill(groups.zeros, 8);
        return scale_->Read({block.row, block.rows, groups.first, groups.count},
                            std::as_writable_bytes(std::span(groups.scales)));
    }
    ByteRows weight_;
    MatrixPtr scale_;
};

// Int8 codes: int-quantized of compressed-tensors, int8 of bitsandbytes.
class Int8Matrix final : public PackedMatrix {
  public:
    // scale: F32 [out or 1, groups], multiplied by `part`. zero_point: [out, groups], bytes.
    Int8Matrix(const Shape& shape, ByteRows weight, MatrixPtr scale, float part,
               std::optional<ByteRows> zero_point)
        : PackedMatrix(shape, nullptr, false),
          weight_(weight),
          scale_(std::move(scale)),
          part_(part),
          zero_point_(zero_point) {}

  private:
    Status Unpack(const Block& block, std::span<uint8_t> codes) const override {
        WEFT_TRY(weight_.Read(block, std::as_writable_bytes(codes)));
        for (uint8_t& code : codes) code ^= 0x80;
        return {};
    }
    Status ReadGroups(const Block& block, Groups& groups) const override {
        const bool shared = scale_->rows() == 1;
        const auto count = static_cast<size_t>(groups.count);
        WEFT_TRY(scale_->Read(
            {shared ? 0 : block.row, shared ? 1 : block.rows, groups.first, groups.count},
            std::as_writable_bytes(
                std::span(groups.scales).first(shared ? count : groups.scales.size()))));
        for (size_t i = shared ? count : groups.scales.size(); i < groups.scales.size(); ++i) {
            groups.scales[i] = groups.scales[i - count];
        }
        for (float& scale : groups.scales) {
            WEFT_TRY(CheckScale(scale));
            scale = CutScale(scale * part_);
        }
        std::ranges::fill(groups.zeros, 128);
        if (!zero_point_) return {};
        std::vector<std::byte> zeros(groups.zeros.size());
        WEFT_TRY(zero_point_->Read({block.row, block.rows, groups.first, groups.count}, zeros));
        for (size_t i = 0; i < zeros.size(); ++i) {
            groups.zeros[i] = std::to_integer<int>(zeros[i] ^ std::byte{0x80});
        }
        return {};
    }
    // A W8 block holds 16 bits of a scale's mantissa, enough for F16 and BF16 scales.
    float CutScale(float scale) const {
        if (dtype() != DType::kW8) return scale;
        return std::bit_cast<float>((std::bit_cast<uint32_t>(scale) + 0x80u) & ~0xffu);
    }

    ByteRows weight_;
    MatrixPtr scale_;
    float part_;
    std::optional<ByteRows> zero_point_;
};

}  // namespace

// ---- From tensors to matrices -------------------------------------------------------------------

Status LinearMaker::CheckOneForm() const {
    const int weights =
        (parts_.weight != nullptr) + (parts_.qweight != nullptr) + (parts_.packed != nullptr);
    if (weights > 1) {
        return Corrupt("has more than one of weight, weight_packed and qweight");
    }
    if (parts_.scale != nullptr && parts_.scale_inv != nullptr) {
        return Corrupt("has a weight_scale and a weight_scale_inv");
    }
    return {};
}

Result<MatrixPtr> LinearMaker::Make() const {
    WEFT_TRY(CheckOneForm());
    WEFT_ASSIGN(MatrixPtr matrix, MakeForm());
    if (parts_.column_scale == nullptr) return matrix;
    return WithColumnScales(std::move(matrix));
}

Result<MatrixPtr> LinearMaker::MakeForm() const {
    if (q_.method == Method::kMlx) return MakeMlx();
    if (q_.method == Method::kBitsAndBytes) return MakeBitsAndBytes();
    const SafeTensor* weight = parts_.weight != nullptr ? parts_.weight : parts_.packed;
    const bool floats = q_.method == Method::kCompressed || q_.method == Method::kModelOpt;
    if (weight != nullptr && weight->type == SafeType::kU8 && floats) {
        const bool integers =
            q_.method == Method::kModelOpt && parts_.scale != nullptr &&
            (parts_.scale->type == SafeType::kF32 || parts_.scale->type == SafeType::kF16 ||
             parts_.scale->type == SafeType::kBF16);
        return integers ? MakeRowPairs() : MakeFp4(*weight);
    }
    const bool fp8 = parts_.weight != nullptr && parts_.weight->type == SafeType::kF8E4M3;
    if (parts_.pieces > 1 && !fp8) return Corrupt("is stacked in a layout that is not supported");
    if (parts_.weight != nullptr && parts_.weight->type == SafeType::kI8 && floats) {
        return MakeInt8();
    }
    if (fp8) return MakeFp8();
    const bool codes = parts_.weight != nullptr && parts_.weight->type == SafeType::kI8 &&
                       parts_.scale != nullptr && parts_.scale->type == SafeType::kF8E8M0;
    if (codes && q_.method == Method::kFp8) return MakeFp4(*parts_.weight);  // DeepSeek V4
    if (parts_.packed != nullptr && q_.method == Method::kCompressed) return MakeRowPacked();
    if (parts_.qweight != nullptr && q_.method == Method::kAwq) return MakeAwq();
    if (parts_.qweight != nullptr && q_.method == Method::kGptq) return MakeGptq();
    if (parts_.weight != nullptr) {
        return Corrupt("has a weight of dtype {}, which does not match its quantization",
                       SafeTypeName(parts_.weight->type));
    }
    return Corrupt("is packed, but config.json has no quantization_config for it");
}

Result<MatrixPtr> LinearMaker::Part(const SafeTensor* tensor, const char* name, int64_t rows,
                                    int64_t cols, bool floats) const {
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

Result<DType> LinearMaker::TypeOf(const SafeTensor& tensor, const char* name, bool floats) const {
    if (!floats && tensor.type == SafeType::kI32) return DType::kI32;
    if (floats && tensor.type == SafeType::kF32) return DType::kF32;
    if (floats && tensor.type == SafeType::kF16) return DType::kF16;
    if (floats && tensor.type == SafeType::kBF16) return DType::kBF16;
    return Corrupt("has a {} of dtype {}; expected {}", name, SafeTypeName(tensor.type),
                   floats ? "F16, BF16 or F32" : "I32");
}

Status LinearMaker::NeedMatrix(const SafeTensor* tensor, const char* name) const {
    if (tensor == nullptr) return Corrupt("has no {}", name);
    if (tensor->shape.size() == 2) return {};
    const bool stacked = tensor->shape.size() == 3 && parts_.pieces > 1;
    if (stacked && tensor->shape[0] == parts_.pieces) return {};
    return Corrupt("has a {} of {} dims; expected 2", name, tensor->shape.size());
}

namespace {

// Layers that W4 and W8 cannot hold become values, in the scales' dtype.
DType TargetType(const Scheme& q, const PackedMatrix::Shape& shape, SafeType scales) {
    const bool blocks = !q.any_order && shape.group % kBlock == 0 && shape.in % kBlock == 0;
    if (scales == SafeType::kF32) return DType::kF32;
    if (blocks) return shape.bits <= 4 ? DType::kW4 : DType::kW8;
    return scales == SafeType::kF16 ? DType::kF16 : DType::kBF16;
}

// nullopt: the numbers of rows, columns and groups do not match.
std::optional<PackedMatrix::Shape> ShapeOf(const Scheme& q, int64_t out, int64_t in, int64_t groups,
                                           SafeType scales) {
    const int64_t group = q.group == 0 ? in : q.group;
    if (in < 1 || out < 1 || groups < 1 || (!q.any_order && in % group != 0) ||
        (in + group - 1) / group != groups) {
        return std::nullopt;
    }
    PackedMatrix::Shape shape{out, in, group, groups, q.bits, DType::kW4};
    shape.dtype = TargetType(q, shape, scales);
    return shape;
}

}  // namespace

Error LinearMaker::WrongGroups(int64_t in, int64_t groups) const {
    return Corrupt("has {} columns in groups of {}, but {} groups of scales", in,
                   q_.group == 0 ? in : q_.group, groups);
}

// The columns' groups: kI32 [in].
Result<MatrixPtr> LinearMaker::GroupIndex(const SafeTensor* tensor, int64_t in) const {
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

Result<MatrixPtr> LinearMaker::MakeAwq() const {
    WEFT_TRY(NeedMatrix(parts_.qweight, "qweight"));
    WEFT_TRY(NeedMatrix(parts_.scales, "scales"));
    const int64_t in = parts_.qweight->shape[0], out = parts_.scales->shape[1];
    const int64_t groups = parts_.scales->shape[0];
    if (out % 8 != 0) return Corrupt("has {} outputs; expected a multiple of 8", out);
    const auto shape = ShapeOf(q_, out, in, groups, parts_.scales->type);
    if (!shape) return WrongGroups(in, groups);
    WEFT_ASSIGN(MatrixPtr qweight, Part(parts_.qweight, "qweight", in, out / 8, false));
    WEFT_ASSIGN(MatrixPtr qzeros, Part(parts_.qzeros, "qzeros", groups, out / 8, false));
    WEFT_ASSIGN(MatrixPtr scales, Part(parts_.scales, "scales", groups, out, true));
    return MatrixPtr(std::make_unique<AwqMatrix>(*shape, std::move(qweight), std::move(qzeros),
                                                 std::move(scales)));
}

Result<MatrixPtr> LinearMaker::MakeGptq() const {
    WEFT_TRY(NeedMatrix(parts_.qweight, "qweight"));
    WEFT_TRY(NeedMatrix(parts_.scales, "scales"));
    const int64_t in_bits = parts_.qweight->shape[0] * 32, in = in_bits / q_.bits;
    const int64_t out = parts_.qweight->shape[1], groups = parts_.scales->shape[0];
    if (in_bits % q_.bits != 0 || out * q_.bits % 32 != 0) {
        return Corrupt("has {} x {} words, which are not whole columns of {} bits",
                       parts_.qweight->shape[0], out, q_.bits);
    }
    const auto shape = ShapeOf(q_, out, in, groups, parts_.scales->type);
    if (!shape) return WrongGroups(in, groups);
    WEFT_ASSIGN(MatrixPtr qweight, Part(parts_.qweight, "qweight", in_bits / 32, out, false));
    WEFT_ASSIGN(MatrixPtr qzeros, Part(parts_.qzeros, "qzeros", groups, out * q_.bits / 32, false));
    WEFT_ASSIGN(MatrixPtr scales, Part(parts_.scales, "scales", groups, out, true));
    WEFT_ASSIGN(MatrixPtr g_idx, GroupIndex(parts_.g_idx, in));
    return MatrixPtr(std::make_unique<GptqMatrix>(*shape, std::move(qweight), std::move(qzeros),
                                                  std::move(scales), std::move(g_idx), q_));
}

Result<MatrixPtr> LinearMaker::MakeRowPacked() const {
    WEFT_TRY(NeedMatrix(parts_.packed, "weight_packed"));
    WEFT_TRY(NeedMatrix(parts_.scale, "weight_scale"));
    WEFT_ASSIGN(const auto dims, TwoDims());
    const auto [out, in] = dims;
    const int64_t per_word = 32 / q_.bits, groups = parts_.scale->shape[1];
    if (out < 1 || in < 1 || out > 1ll << 40 || in > 1ll << 40) {
        return Corrupt("has a weight_shape of [{}, {}]", out, in);
    }
    const auto shape = ShapeOf(q_, out, in, groups, parts_.scale->type);
    if (!shape) return WrongGroups(in, groups);
    WEFT_ASSIGN(MatrixPtr packed,
                Part(parts_.packed, "weight_packed", out, (in + per_word - 1) / per_word, false));
    WEFT_ASSIGN(MatrixPtr scale, Part(parts_.scale, "weight_scale", out, groups, true));
    MatrixPtr zero_point;
    WEFT_TRY(NeedZeros());
    if (parts_.zero_point != nullptr) {
        WEFT_ASSIGN(zero_point, Part(parts_.zero_point, "weight_zero_point",
                                     (out + per_word - 1) / per_word, groups, false));
    }
    WEFT_ASSIGN(MatrixPtr g_idx, GroupIndex(parts_.packed_g_idx, in));
    return MatrixPtr(std::make_unique<RowPackedMatrix>(*shape, std::move(packed), std::move(scale),
                                                       std::move(zero_point), std::move(g_idx),
                                                       q_.any_order));
}

Result<std::array<int64_t, 2>> LinearMaker::TwoDims() const {
    const SafeTensor* shape = parts_.shape;
    const bool wide = shape != nullptr && shape->type == SafeType::kI64 && shape->bytes == 16;
    const bool narrow = shape != nullptr && shape->type == SafeType::kI32 && shape->bytes == 8;
    if (!wide && !narrow) return Corrupt("has no weight_shape of two I64 or I32");
    std::array<int64_t, 2> dims{};
    std::array<int32_t, 2> few{};
    std::span<std::byte> out = std::as_writable_bytes(std::span(dims));
    if (narrow) out = std::as_writable_bytes(std::span(few));
    WEFT_TRY(files_.file(*shape).ReadAt(shape->offset, out));
    if (narrow) dims = {few[0], few[1]};
    return dims;
}

Status LinearMaker::NeedZeros() const {
    if (!q_.zeros || parts_.zero_point != nullptr) return {};
    return Corrupt("has no weight_zero_point, but its quantization is not 'symmetric'");
}

// weight: [out / 2, in]; weight_scale: [out, groups].
Result<MatrixPtr> LinearMaker::MakeRowPairs() const {
    WEFT_TRY(NeedMatrix(parts_.weight, "weight"));
    WEFT_TRY(NeedMatrix(parts_.scale, "weight_scale"));
    if (parts_.pieces > 1) return Corrupt("is stacked in a layout that is not supported");
    const int64_t out = parts_.weight->shape[0] * 2, in = parts_.weight->shape[1];
    const int64_t groups = parts_.scale->shape[1];
    if (out < 1 || in < 1 || groups < 1 || in % groups != 0) return WrongGroups(in, groups);
    if (parts_.scale_2 != nullptr) return Corrupt("has integers with a weight_scale_2");
    Scheme scheme = q_;
    scheme.bits = 4;
    scheme.group = in / groups;
    const auto shape = ShapeOf(scheme, out, in, groups, parts_.scale->type);
    if (!shape) return WrongGroups(in, groups);
    WEFT_ASSIGN(MatrixPtr scale, Part(parts_.scale, "weight_scale", out, groups, true));
    const ByteRows weight{&files_.file(*parts_.weight), parts_.weight->offset, in};
    return MatrixPtr(std::make_unique<RowPairsMatrix>(*shape, weight, std::move(scale)));
}

// weight_scale: [out, groups], [out], or one number.
Result<MatrixPtr> LinearMaker::MakeInt8() const {
    WEFT_TRY(NeedMatrix(parts_.weight, "weight"));
    if (parts_.scale == nullptr) return Corrupt("has no weight_scale");
    const int64_t out = parts_.weight->shape[0], in = parts_.weight->shape[1];
    if (out < 1 || in < 1) return Corrupt("is empty");
    if (q_.block_rows > 1) return Corrupt("is int8 with scales by block, which is not supported");
    const auto count =
        static_cast<int64_t>(parts_.scale->bytes / SafeTypeBytes(parts_.scale->type));
    const int64_t rows = count == 1 ? 1 : out;
    const int64_t groups = q_.group == 0 ? 1 : in / q_.group;
    Scheme scheme = q_;
    scheme.bits = 8;
    auto shape = ShapeOf(scheme, out, in, groups, parts_.scale->type);
    if (!shape) return WrongGroups(in, groups);
    if (count != rows * groups) {
        return Corrupt("has {} scales; expected {} x {}", count, rows, groups);
    }
    WEFT_ASSIGN(const DType dtype, TypeOf(*parts_.scale, "weight_scale", true));
    MatrixPtr scale =
        Converted(FromFile(files_.file(*parts_.scale), parts_.scale->offset, dtype, rows, groups),
                  DType::kF32);
    std::optional<ByteRows> zeros;
    WEFT_TRY(NeedZeros());
    if (const SafeTensor* zero = parts_.zero_point; zero != nullptr) {
        if (zero->type != SafeType::kI8 || zero->bytes != static_cast<uint64_t>(out * groups)) {
            return Corrupt("has a weight_zero_point of {} and {} bytes; expected I8 [{}, {}]",
                           SafeTypeName(zero->type), zero->bytes, out, groups);
        }
        zeros = ByteRows{&files_.file(*zero), zero->offset, groups};
    }
    const ByteRows weight{&files_.file(*parts_.weight), parts_.weight->offset, in};
    return MatrixPtr(std::make_unique<Int8Matrix>(*shape, weight, std::move(scale), 1.0f, zeros));
}

// bitsandbytes: SCB [out] is 127 times the scale of a row.
Result<MatrixPtr> LinearMaker::MakeScb() const {
    WEFT_TRY(NeedMatrix(parts_.weight, "weight"));
    const int64_t out = parts_.weight->shape[0], in = parts_.weight->shape[1];
    if (out < 1 || in < 1) return Corrupt("is empty");
    if (parts_.scb == nullptr) return Corrupt("is int8, but has no SCB");
    if (parts_.scb->type != SafeType::kF32 ||
        parts_.scb->bytes != static_cast<uint64_t>(out) * sizeof(float)) {
        return Corrupt("has an SCB of {} and {} bytes; expected F32 [{}]",
                       SafeTypeName(parts_.scb->type), parts_.scb->bytes, out);
    }
    // 0: rows; versions of bitsandbytes before 0.45 also saved the layouts of GPUs.
    std::array<std::byte, 1> format{};
    if (parts_.format != nullptr && parts_.format->bytes == format.size()) {
        WEFT_TRY(files_.file(*parts_.format).ReadAt(parts_.format->offset, format));
    }
    if (format[0] != std::byte{0}) {
        return Corrupt(
            "has a weight_format of {}, a GPU's layout; expected 0, rows. Save the model "
            "again before a first forward pass, or with bitsandbytes 0.45 or later",
            std::to_integer<int>(format[0]));
    }
    const DType dtype = in % kBlock == 0 ? DType::kW8 : DType::kBF16;
    const PackedMatrix::Shape shape{out, in, in, 1, 8, dtype};
    MatrixPtr scale = FromFile(files_.file(*parts_.scb), parts_.scb->offset, DType::kF32, out, 1);
    const ByteRows weight{&files_.file(*parts_.weight), parts_.weight->offset, in};
    return MatrixPtr(
        std::make_unique<Int8Matrix>(shape, weight, std::move(scale), 1.0f / 127, std::nullopt));
}

LinearParts FindLinearParts(const std::function<const SafeTensor*(const std::string&)>& find) {
    LinearParts parts = {.weight = find("weight"),
                         .qweight = find("qweight"),
                         .qzeros = find("qzeros"),
                         .scales = find("scales"),
                         .g_idx = find("g_idx"),
                         .packed = find("weight_packed"),
                         .scale = find("weight_scale"),
                         .scale_inv = find("weight_scale_inv"),
                         .zero_point = find("weight_zero_point"),
                         .shape = find("weight_shape"),
                         .packed_g_idx = find("weight_g_idx"),
                         .global_scale = find("weight_global_scale"),
                         .scale_2 = find("weight_scale_2"),
                         .biases = find("biases"),
                         .absmax = find("weight.absmax"),
                         .quant_map = find("weight.quant_map"),
                         .nested_absmax = find("weight.nested_absmax"),
                         .nested_quant_map = find("weight.nested_quant_map"),
                         .quant_state = find("weight.quant_state.bitsandbytes__nf4"),
                         .scb = find("SCB"),
                         .format = find("weight_format"),
                         .column_scale = find("pre_quant_scale")};
    if (parts.quant_state == nullptr) {
        parts.quant_state = find("weight.quant_state.bitsandbytes__fp4");
    }
    if (parts.scale == nullptr) parts.scale = find("scale");  // DeepSeek V4
    return parts;
}

Result<MatrixPtr> PackedLinear(const LinearParts& parts, const Scheme& scheme,
                               const TensorFiles& files, const std::string& module,
                               const std::string& folder) {
    return LinearMaker(parts, scheme, files, module, folder).Make();
}

}  // namespace weft::model_files::hf
