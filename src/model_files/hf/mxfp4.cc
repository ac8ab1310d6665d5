#include <algorithm>

#include "model_files/hf/linear_maker.h"

namespace weft::model_files::hf {
namespace {

constexpr int64_t kGroupBytes = 16;  // for 32 elements

class Mxfp4Matrix final : public Matrix {
  public:
    Mxfp4Matrix(const WeightFile& blocks_file, uint64_t blocks, const WeightFile& scales_file,
                uint64_t scales, int64_t rows, int64_t groups)
        : Matrix(DType::kMXFP4, rows, groups * 32),
          blocks_file_(blocks_file),
          blocks_(blocks),
          scales_file_(scales_file),
          scales_(scales),
          groups_(groups) {}

    Status Read(const Block& block, std::span<std::byte> out) const override {
        const int64_t first = block.col / 32, count = block.cols / 32;
        const int64_t most = std::max<int64_t>(1, (1 << 20) / (count * kGroupBytes));
        std::vector<std::byte> nibbles, scales;
        for (int64_t done = 0; done < block.rows; done += most) {
            const int64_t rows = std::min(most, block.rows - done);
            WEFT_TRY(ReadPart(blocks_file_, blocks_, kGroupBytes, block.row + done, rows, first,
                              count, nibbles));
            WEFT_TRY(
                ReadPart(scales_file_, scales_, 1, block.row + done, rows, first, count, scales));
            const std::byte* from = nibbles.data();
            for (const std::byte scale : scales) {
                if (scale == std::byte{255}) {
                    return MakeError(ErrorCode::kCorrupt,
                                     "a scale of 32 weights is NaN; expected a power of two");
                }
                Repack(scale, from, out.data());
                out = out.subspan(1 + kGroupBytes);
                from += kGroupBytes;
            }
        }
        return {};
    }

  private:
    // Reads `size` bytes per group.
    Status ReadPart(const WeightFile& file, uint64_t offset, int64_t size, int64_t row,
                    int64_t rows, int64_t first, int64_t count, std::vector<std::byte>& out) const {
        out.resize(static_cast<size_t>(rows * count * size));
        const auto begin = offset + static_cast<uint64_t>((row * groups_ + first) * size);
        if (count == groups_) return file.ReadAt(begin, out);
        return file.ReadStrided(begin, static_cast<uint64_t>(groups_ * size),
                                static_cast<uint64_t>(count * size), out);
    }

    // Repacks nibbles from neighboring pairs to element i next to element i + 16.
    static void Repack(std::byte scale, const std::byte* from, std::byte* to) {
        const auto nibble = [&](int i) {
            return std::to_integer<int>(from[i / 2]) >> i % 2 * 4 & 15;
        };
        to[0] = scale;
        for (int i = 0; i < 16; ++i) {
            to[1 + i] = static_cast<std::byte>(nibble(i) | nibble(i + 16) << 4);
        }
    }

    const WeightFile& blocks_file_;
    uint64_t blocks_;
    const WeightFile& scales_file_;
    uint64_t scales_;
    int64_t groups_;
};

}  // namespace

MatrixPtr Mxfp4FromFiles(const ByteRows& codes, const ByteRows& scales, int64_t rows,
                         int64_t cols) {
    return std::make_unique<Mxfp4Matrix>(*codes.file, codes.offset, *scales.file, scales.offset,
                                         rows, cols / 32);
}

Result<MatrixPtr> Mxfp4Experts(const SafeTensor& blocks, const SafeTensor& scales,
                               const TensorFiles& files, const std::string& folder) {
    bool fits = blocks.type == SafeType::kU8 && scales.type == SafeType::kU8 &&
                blocks.shape.size() == 4 && scales.shape.size() == 3 && blocks.shape[3] == 16;
    for (size_t d = 0; fits && d < 3; ++d) {
        fits = blocks.shape[d] == scales.shape[d] && blocks.shape[d] > 0;
    }
    if (!fits) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: '{}': expected U8 [experts, rows, groups, 16], and scales U8 "
                         "[experts, rows, groups]",
                         folder, blocks.name);
    }
    return MatrixPtr(std::make_unique<Mxfp4Matrix>(
        files.file(blocks), blocks.offset, files.file(scales), scales.offset,
        blocks.shape[0] * blocks.shape[1], blocks.shape[2]));
}

}  // namespace weft::model_files::hf
