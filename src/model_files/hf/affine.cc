// Codes with a scale and an offset, and codes of a codebook: MLX, bitsandbytes.
#include <algorithm>
#include <array>
#include <cstring>

#include "model_files/hf/linear_maker.h"
#include "tensor/half.h"
#include "tensor/quant.h"

namespace weft::model_files::hf {
namespace {

// ---- MLX ----------------------------------------------------------------------------------------

// w = q * scale + bias. The codes of a row are a bit stream, least significant bit first.
class AffineMatrix final : public Matrix {
  public:
    // dtype: kQ4_1 for at most 4 bits, kQ5_1 for 5, kF16 or kF32. scales, biases: F32.
    AffineMatrix(DType dtype, int bits, int64_t group, const ByteRows& codes, MatrixPtr scales,
                 MatrixPtr biases)
        : Matrix(dtype, scales->rows(), scales->cols() * group),
          bits_(bits),
          group_(group),
          codes_(codes),
          scales_(std::move(scales)),
          biases_(std::move(biases)) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        const int64_t most = std::max<int64_t>(1, (1 << 20) / block.cols);
        for (int64_t done = 0; done < block.rows; done += most) {
            const int64_t rows = std::min(most, block.rows - done);
            WEFT_TRY(ReadPart({block.row + done, rows, block.col, block.cols},
                              out.subspan(BytesOf(done, block.cols), BytesOf(rows, block.cols))));
        }
        return {};
    }

  private:
    struct Part {
        std::vector<uint8_t> codes;
        std::vector<float> scales, biases;
    };

    Status ReadPart(const Block& block, std::span<std::byte> out) const {
        const int64_t first = block.col / group_;
        const int64_t groups = (block.col + block.cols - 1) / group_ - first + 1;
        Part part;
        part.scales.resize(static_cast<size_t>(block.rows * groups));
        part.biases.resize(part.scales.size());
        const Block of_groups{block.row, block.rows, first, groups};
        WEFT_TRY(scales_->Read(of_groups, std::as_writable_bytes(std::span(part.scales))));
        WEFT_TRY(biases_->Read(of_groups, std::as_writable_bytes(std::span(part.biases))));
        for (const auto& floats : {std::span(part.scales), std::span(part.biases)}) {
            for (const float value : floats) WEFT_TRY(CheckScale(value));
        }
        WEFT_TRY(ReadCodes(block, part.codes));
        std::vector<float> values(static_cast<size_t>(block.cols));
        for (int64_t r = 0; r < block.rows; ++r) {
            const auto codes =
                std::span(part.codes).subspan(static_cast<size_t>(r * block.cols), values.size());
            const float* scales = part.scales.data() + r * groups - first;
            const float* biases = part.biases.data() + r * groups - first;
            const auto to = out.subspan(BytesOf(r, block.cols), BytesOf(1, block.cols));
            if (Info(dtype()).quantized) {
                WEFT_TRY(PutBlocks(codes, block.col, scales, biases, to.data()));
                continue;
            }
            for (size_t c = 0; c < values.size(); ++c) {
                const int64_t group = (block.col + static_cast<int64_t>(c)) / group_;
                values[c] = static_cast<float>(codes[c]) * scales[group] + biases[group];
            }
            const float most = std::fabs(*std::ranges::max_element(
                values, {}, [](float value) { return std::fabs(value); }));
            if (dtype() == DType::kF16 && most > 65504) {
                return MakeError(ErrorCode::kUnsupported,
                                 "a weight is {}; float16 holds up to 65504", most);
            }
            QuantizeRow(dtype(), values, to);
        }
        return {};
    }

    Status ReadCodes(const Block& block, std::vector<uint8_t>& codes) const {
        const int64_t first = block.col * bits_ / 8;
        const int64_t end = ((block.col + block.cols) * bits_ + 7) / 8;
        std::vector<std::byte> bytes(static_cast<size_t>(block.rows * (end - first)));
        WEFT_TRY(codes_.Read({block.row, block.rows, first, end - first}, bytes));
        codes.resize(static_cast<size_t>(block.rows * block.cols));
        uint8_t* to = codes.data();
        for (int64_t r = 0; r < block.rows; ++r) {
            const std::byte* row = bytes.data() + r * (end - first);
            for (int64_t c = block.col; c < block.col + block.cols; ++c) {
                const int64_t bit = c * bits_ - first * 8, at = bit / 8;
                auto word = std::to_integer<unsigned>(row[at]);
                if (bit % 8 + bits_ > 8) word |= std::to_integer<unsigned>(row[at + 1]) << 8;
                *to++ = static_cast<uint8_t>(word >> bit % 8 & ((1u << bits_) - 1));
            }
        }
        return {};
    }

    // f16 scale, f16 offset, u32 of fifth bits (Q5_1), nibbles.
    Status PutBlocks(std::span<const uint8_t> codes, int64_t col, const float* scales,
                     const float* biases, std::byte* out) const {
        for (size_t c = 0; c < codes.size(); c += 32) {
            const int64_t group = (col + static_cast<int64_t>(c)) / group_;
            for (const float value : {scales[group], biases[group]}) {
                if (std::fabs(value) > 65504) {
                    return MakeError(ErrorCode::kUnsupported,
                                     "a scale or bias is {}; float16 holds up to 65504", value);
                }
                const uint16_t half = F32ToF16(value);
                std::memcpy(out, &half, sizeof half);
                out += sizeof half;
            }
            const uint8_t* code = codes.data() + c;
            if (dtype() == DType::kQ5_1) {
                uint32_t fifth = 0;
                for (uint32_t i = 0; i < 32; ++i) fifth |= uint32_t{code[i]} >> 4 << i;
                std::memcpy(out, &fifth, sizeof fifth);
                out += sizeof fifth;
            }
            for (int i = 0; i < 16; ++i) {
                *out++ = static_cast<std::byte>((code[i] & 15) | code[i + 16] << 4);
            }
        }
        return {};
    }

    int bits_;
    int64_t group_;
    ByteRows codes_;
    MatrixPtr scales_, biases_;
};

// The product of all dims but the last: experts may be in one tensor.
int64_t LeadingRows(const SafeTensor& tensor) {
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
    return rows;
}

// ---- bitsandbytes -------------------------------------------------------------------------------

// The absmax of each block: floats, or codes of a codebook times their own scales, plus an offset.
struct Absmax {
    MatrixPtr floats;  // F32 [1, blocks]; nullptr: codes
    ByteRows codes;
    MatrixPtr book, nested;  // F32 [1, 256], [1, blocks / nested_block]
    int64_t nested_block = 0;
    float offset = 0;

    Status Read(int64_t first, int64_t count, std::vector<float>& out) const {
        out.resize(static_cast<size_t>(count));
        const auto bytes = std::as_writable_bytes(std::span(out));
        if (floats != nullptr) {
            WEFT_TRY(floats->Read({0, 1, first, count}, bytes));
        } else {
            WEFT_TRY(ReadNested(first, count, out));
        }
        for (const float value : out) WEFT_TRY(CheckScale(value));
        return {};
    }

  private:
    Status ReadNested(int64_t first, int64_t count, std::vector<float>& out) const {
        std::array<float, 256> values;
        WEFT_TRY(book->Read({0, 1, 0, 256}, std::as_writable_bytes(std::span(values))));
        std::vector<std::byte> own(out.size());
        WEFT_TRY(codes.Read({0, 1, first, count}, own));
        const int64_t begin = first / nested_block;
        std::vector<float> scales(
            static_cast<size_t>((first + count - 1) / nested_block - begin + 1));
        WEFT_TRY(nested->Read({0, 1, begin, static_cast<int64_t>(scales.size())},
                              std::as_writable_bytes(std::span(scales))));
        for (int64_t i = 0; i < count; ++i) {
            const auto at = static_cast<size_t>(i);
            const auto group = static_cast<size_t>((first + i) / nested_block - begin);
            out[at] = values[std::to_integer<size_t>(own[at])] * scales[group] + offset;
        }
        return {};
    }
};

// Weights in reading order, two 4-bit codes per byte, the first in the high bits.
class BookMatrix final : public Matrix {
  public:
    BookMatrix(int64_t rows, int64_t cols, const ByteRows& codes, MatrixPtr book, int64_t block,
               Absmax absmax)
        : Matrix(DType::kBF16, rows, cols),
          codes_(codes),
          book_(std::move(book)),
          block_(block),
          absmax_(std::move(absmax)) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        std::array<float, 16> book;
        WEFT_TRY(book_->Read({0, 1, 0, 16}, std::as_writable_bytes(std::span(book))));
        for (const float value : book) WEFT_TRY(CheckScale(value));
        std::vector<std::byte> bytes;
        std::vector<float> absmax;
        for (int64_t row = block.row; row < block.row + block.rows; ++row) {
            const int64_t begin = row * cols() + block.col, end = begin + block.cols;
            const int64_t first = begin / 2, first_block = begin / block_;
            bytes.resize(static_cast<size_t>((end + 1) / 2 - first));
            WEFT_TRY(codes_.Read({0, 1, first, static_cast<int64_t>(bytes.size())}, bytes));
            WEFT_TRY(absmax_.Read(first_block, (end - 1) / block_ - first_block + 1, absmax));
            for (int64_t i = begin; i < end; ++i) {
                const std::byte byte = bytes[static_cast<size_t>(i / 2 - first)];
                const auto code = std::to_integer<size_t>(byte >> (i % 2 == 0 ? 4 : 0)) & 15;
                const auto group = static_cast<size_t>(i / block_ - first_block);
                const uint16_t half = F32ToBF16(book[code] * absmax[group]);
                std::memcpy(out.data(), &half, sizeof half);
                out = out.subspan(sizeof half);
            }
        }
        return {};
    }

  private:
    ByteRows codes_;
    MatrixPtr book_;
    int64_t block_;
    Absmax absmax_;
};

struct BnbState {
    int64_t rows, cols, block, nested_block;
    float nested_offset;
};

Result<BnbState> ReadState(const Config& state) {
    WEFT_ASSIGN(const std::vector<int64_t> shape, state.Ints({"shape"}));
    constexpr int64_t kMost = int64_t{1} << 30;
    if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] > kMost || shape[1] > kMost) {
        return state.Corrupt("shape", "two numbers from 1 to 2^30");
    }
    BnbState read{shape[0], shape[1], 0, 0, 0};
    WEFT_ASSIGN(read.block, state.NeedInt({"blocksize"}, 2, 1 << 20));
    WEFT_ASSIGN(read.nested_block, state.IntOr({"nested_blocksize"}, 1, 1 << 20, 256));
    WEFT_ASSIGN(const double offset, state.F64Or({"nested_offset"}, 0));
    read.nested_offset = static_cast<float>(offset);
    return read;
}

uint64_t ShareCount(int64_t all, int64_t each) {
    return static_cast<uint64_t>((all + each - 1) / each);
}

}  // namespace

Result<MatrixPtr> LinearMaker::MakeAffine(int64_t rows, int64_t cols) const {
    const SafeTensor* scales = parts_.scales;
    const SafeTensor* biases = parts_.biases;
    if (biases == nullptr) return Corrupt("has scales, but no biases");
    const int64_t groups = cols / q_.group;
    for (const SafeTensor* tensor : {scales, biases}) {
        const uint64_t elements = tensor->bytes / SafeTypeBytes(tensor->type);
        if (cols % q_.group == 0 && elements == static_cast<uint64_t>(rows * groups)) continue;
        return Corrupt("has {} columns in groups of {}, but {} scales or biases for {} rows", cols,
                       q_.group, elements, rows);
    }
    WEFT_ASSIGN(const DType type, TypeOf(*scales, "scales", true));
    WEFT_ASSIGN(MatrixPtr scale, Scales(*scales, rows, groups));
    WEFT_ASSIGN(MatrixPtr bias, Scales(*biases, rows, groups));
    // (BF16 would round codes of 8 bits: it has as many.)
    DType dtype = parts_.exact ? DType::kF32 : DType::kF16;
    if (type != DType::kF32 && q_.group % 32 == 0) {
        if (q_.bits <= 4) dtype = DType::kQ4_1;
        if (q_.bits == 5) dtype = DType::kQ5_1;
    }
    const ByteRows codes{&files_.file(*parts_.weight), parts_.weight->offset, cols * q_.bits / 8};
    return MatrixPtr(std::make_unique<AffineMatrix>(dtype, q_.bits, q_.group, codes,
                                                    std::move(scale), std::move(bias)));
}

Result<MatrixPtr> LinearMaker::MakeMlx() const {
    const SafeTensor* weight = parts_.weight;
    if (weight == nullptr) return Corrupt("has no weight");
    if (parts_.scales == nullptr)
        return Corrupt("is of {}, but has no scales", SafeTypeName(weight->type));
    if (weight->type != SafeType::kU32 || weight->shape.size() < 2 || weight->shape.size() > 3) {
        return Corrupt("has a weight of {} with {} dims; expected U32 with 2 or 3",
                       SafeTypeName(weight->type), weight->shape.size());
    }
    const int64_t rows = LeadingRows(*weight), bits = weight->shape.back() * 32;
    const int64_t cols = bits / q_.bits;
    if (rows < 1 || cols < 1 || bits % q_.bits != 0) {
        return Corrupt("has rows of {} bits, which are not a whole number of {}-bit columns", bits,
                       q_.bits);
    }
    switch (q_.mode) {
        case MlxMode::kAffine: return MakeAffine(rows, cols);
        case MlxMode::kMxfp4: return Mxfp4Rows(*weight, *parts_.scales, rows, cols);
        case MlxMode::kMxfp8: return Fp8Rows(*weight, rows, cols, *parts_.scales, 1, 32, rows);
        case MlxMode::kNvfp4: return MakeNvfp4(*weight, *parts_.scales, rows, cols);
    }
    return Corrupt("has an unknown mode");
}

Result<MatrixPtr> LinearMaker::MakeBitsAndBytes() const {
    const SafeTensor* weight = parts_.weight;
    if (weight == nullptr) return Corrupt("has no weight");
    if (weight->type == SafeType::kI8) return MakeScb();
    // bnb_4bit_quant_storage: the bytes of codes may be declared as floats.
    const bool holds = weight->type == SafeType::kU8 || weight->type == SafeType::kBF16 ||
                       weight->type == SafeType::kF16 || weight->type == SafeType::kF32;
    if (!holds) {
        return Corrupt("has a weight of {}; expected U8, I8 or floats that hold codes",
                       SafeTypeName(weight->type));
    }
    if (parts_.quant_state == nullptr) return Corrupt("has no weight.quant_state");
    if (parts_.absmax == nullptr) return Corrupt("has no weight.absmax");
    const SafeTensor& text = *parts_.quant_state;
    if (text.bytes > 1 << 16) return Corrupt("has a quant_state of {} bytes", text.bytes);
    std::string json(text.bytes, ' ');
    WEFT_TRY(files_.file(text).ReadAt(text.offset, std::as_writable_bytes(std::span(json))));
    WEFT_ASSIGN(const Config config,
                Config::Parse(json, fmt::format("{}: {}.weight.quant_state", folder_, module_)));
    WEFT_ASSIGN(const BnbState state, ReadState(config));
    const int64_t all = state.rows * state.cols;
    if (weight->bytes != ShareCount(all, 2)) {
        return Corrupt("has {} bytes of codes; expected codes for {} x {} weights", weight->bytes,
                       state.rows, state.cols);
    }
    const auto floats = [&](const SafeTensor* tensor, const char* name,
                            uint64_t count) -> Result<MatrixPtr> {
        if (tensor == nullptr) return Corrupt("has no {}", name);
        if (tensor->type == SafeType::kF32 && tensor->bytes == count * 4) {
            return FromFile(files_.file(*tensor), tensor->offset, DType::kF32, 1,
                            static_cast<int64_t>(count));
        }
        return Corrupt("has a {} of {} and {} bytes; expected {} x F32", name,
                       SafeTypeName(tensor->type), tensor->bytes, count);
    };
    const uint64_t blocks = ShareCount(all, state.block);
    Absmax absmax;
    if (parts_.absmax->type == SafeType::kU8 && parts_.absmax->bytes == blocks) {
        absmax.codes = {&files_.file(*parts_.absmax), parts_.absmax->offset,
                        static_cast<int64_t>(blocks)};
        absmax.nested_block = state.nested_block;
        absmax.offset = state.nested_offset;
        const uint64_t nested = ShareCount(static_cast<int64_t>(blocks), state.nested_block);
        WEFT_ASSIGN(absmax.book, floats(parts_.nested_quant_map, "nested_quant_map", 256));
        WEFT_ASSIGN(absmax.nested, floats(parts_.nested_absmax, "nested_absmax", nested));
    } else {
        WEFT_ASSIGN(absmax.floats, floats(parts_.absmax, "absmax", blocks));
    }
    WEFT_ASSIGN(MatrixPtr book, floats(parts_.quant_map, "quant_map", 16));
    const ByteRows codes{&files_.file(*weight), weight->offset,
                         static_cast<int64_t>(weight->bytes)};
    return MatrixPtr(std::make_unique<BookMatrix>(state.rows, state.cols, codes, std::move(book),
                                                  state.block, std::move(absmax)));
}

}  // namespace weft::model_files::hf
