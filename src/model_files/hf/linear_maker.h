// Internal to packed.h: what makes the matrix of one quantized linear layer out of its tensors. Its
// methods stand in the file of their format: packed.cc, scaled.cc, affine.cc.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "model_files/hf/packed.h"

namespace weft::model_files::hf {

// Rows of bytes in a file.
struct ByteRows {
    const WeightFile* file;
    uint64_t offset;
    int64_t row_bytes;
    // Rows and bytes of a row for the block's rows and columns.
    Status Read(const Block& block, std::span<std::byte> out) const {
        const auto begin = offset + static_cast<uint64_t>(block.row * row_bytes + block.col);
        if (block.cols == row_bytes) return file->ReadAt(begin, out);
        return file->ReadStrided(begin, static_cast<uint64_t>(row_bytes),
                                 static_cast<uint64_t>(block.cols), out);
    }
};

// A scale that is read: infinite and NaN are errors.
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
    // kCorrupt: two weights, or two scales of one meaning.
    Status CheckOneForm() const;
    Result<MatrixPtr> MakeForm() const;
    // Columns times pre_quant_scale, which activations are multiplied with, as BF16.
    Result<MatrixPtr> WithColumnScales(MatrixPtr matrix) const;

    Error WrongGroups(int64_t in, int64_t groups) const;
    Status NeedZeros() const;

    // A 2-D tensor of int32 (`floats`: of F16, BF16 or F32, given as F32) of that shape.
    Result<MatrixPtr> Part(const SafeTensor* tensor, const char* name, int64_t rows, int64_t cols,
                           bool floats) const;
    Result<DType> TypeOf(const SafeTensor& tensor, const char* name, bool floats) const;
    // kCorrupt: it is missing, or has not two dims (or three of all pieces).
    Status NeedMatrix(const SafeTensor* tensor, const char* name) const;
    // An F32 tensor of one element, or of one for each piece.
    Result<MatrixPtr> Single(const SafeTensor* tensor, const char* name) const;
    Result<MatrixPtr> GroupIndex(const SafeTensor* tensor, int64_t in) const;
    // Scales of any type that floats of 8 bits have, as F32.
    Result<MatrixPtr> Scales(const SafeTensor& tensor, int64_t rows, int64_t cols) const;

    Result<MatrixPtr> MakeAwq() const;
    Result<MatrixPtr> MakeGptq() const;
    Result<MatrixPtr> MakeRowPacked() const;
    Result<MatrixPtr> MakeInt8() const;
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

// The rows of a matrix of E2M1 codes, two a byte, and E8M0 scales for 32 columns (mxfp4.cc).
MatrixPtr Mxfp4FromFiles(const ByteRows& codes, const ByteRows& scales, int64_t rows, int64_t cols);

}  // namespace weft::model_files::hf
