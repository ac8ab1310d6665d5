// Internal to packed.h: builds the matrix of one quantized linear layer from its tensors. The
// methods for each group of formats are in a file of their own: packed.cc, scaled.cc, affine.cc.
#pragma once

#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "model_files/hf/packed.h"

namespace weft::model_files::hf {

struct ByteRows {
    const WeightFile* file;
    uint64_t offset;
    int64_t row_bytes;
    // Reads a block's rows and columns. A column is one byte.
    Status Read(const Block& block, std::span<std::byte> out) const {
        const auto begin = offset + static_cast<uint64_t>(block.row * row_bytes + block.col);
        if (block.cols == row_bytes) return file->ReadAt(begin, out);
        return file->ReadStrided(begin, static_cast<uint64_t>(row_bytes),
                                 static_cast<uint64_t>(block.cols), out);
    }
};

// Errors: kCorrupt if a scale is infinite or NaN.
inline Status CheckScale(float scale) {
    if (std::isfinite(scale)) return {};
    return MakeError(ErrorCode::kCorrupt, "a scale is {}; expected a finite number", scale);
}

class LinearMaker {
  public:
    LinearMaker(const LinearParts& parts, const Scheme& scheme, const TensorFiles& files,
                const std::string& module, const std::string& folder)
        : parts_(parts), q_(scheme), files_(files), module_(module), folder_(folder) {}

    Result<MatrixPtr> Make() const;

  private:
    template <typename... Args>
    Error Corrupt(fmt::format_string<Args...> format, Args&&... args) const {
        return MakeError(ErrorCode::kCorrupt, "{}: '{}' {}", folder_, Shown(module_),
                         fmt::format(format, std::forward<Args>(args)...));
    }
    // Errors: kCorrupt if the layer has two weights, or two scales with the same meaning.
    Status CheckOneForm() const;
    Result<MatrixPtr> MakeForm() const;
    // Multiplies columns by pre_quant_scale, a factor on activations; the result is BF16.
    Result<MatrixPtr> WithColumnScales(MatrixPtr matrix) const;

    Error WrongGroups(int64_t in, int64_t groups) const;
    Status NeedZeros() const;
    // weight_shape.
    Result<std::array<int64_t, 2>> TwoDims() const;

    // A 2-D tensor of int32 of the given shape; with `floats`, a tensor of F16, BF16 or F32,
    // returned as F32.
    Result<MatrixPtr> Part(const SafeTensor* tensor, const char* name, int64_t rows, int64_t cols,
                           bool floats) const;
    Result<DType> TypeOf(const SafeTensor& tensor, const char* name, bool floats) const;
    // Errors: kCorrupt if the tensor is missing or does not have two dims. A layer with several
    // pieces may have three dims, of which the first is the piece.
    Status NeedMatrix(const SafeTensor* tensor, const char* name) const;
    // An F32 tensor of one element, or of one per piece.
    Result<MatrixPtr> Single(const SafeTensor* tensor, const char* name) const;
    Result<MatrixPtr> GroupIndex(const SafeTensor* tensor, int64_t in) const;
    // The scales of FP8 weights, in any supported type, as F32.
    Result<MatrixPtr> Scales(const SafeTensor& tensor, int64_t rows, int64_t cols) const;

    Result<MatrixPtr> MakeAwq() const;
    Result<MatrixPtr> MakeGptq() const;
    Result<MatrixPtr> MakeRowPacked() const;
    Result<MatrixPtr> MakeInt8() const;
    Result<MatrixPtr> MakeRowPairs() const;
    Result<MatrixPtr> MakeScb() const;

    // scaled.cc
    Result<MatrixPtr> MakeFp8() const;
    Result<MatrixPtr> MakeFp4(const SafeTensor& codes) const;
    Result<MatrixPtr> MakeNvfp4(const SafeTensor& codes, const SafeTensor& scales, int64_t rows,
                                int64_t cols) const;
    Result<MatrixPtr> Fp8Rows(const SafeTensor& weight, int64_t rows, int64_t cols,
                              const SafeTensor& scales, int64_t block_rows, int64_t block_cols,
                              int64_t piece_rows) const;
    Result<MatrixPtr> Mxfp4Rows(const SafeTensor& codes, const SafeTensor& scales, int64_t rows,
                                int64_t cols) const;

    // affine.cc
    Result<MatrixPtr> MakeMlx() const;
    Result<MatrixPtr> MakeAffine(int64_t rows, int64_t cols) const;
    Result<MatrixPtr> MakeBitsAndBytes() const;

    const LinearParts& parts_;
    const Scheme& q_;
    const TensorFiles& files_;
    const std::string& module_;
    const std::string& folder_;
};

// A matrix from E2M1 codes, two per byte, and E8M0 scales for 32 columns each (mxfp4.cc).
MatrixPtr Mxfp4FromFiles(const ByteRows& codes, const ByteRows& scales, int64_t rows, int64_t cols);

}  // namespace weft::model_files::hf
