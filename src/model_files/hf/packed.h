// Quantized linear layers of a folder as matrices: the integers that a layout packs its own way
// become Weft's blocks of 32 columns (DType::kW4, kW8), value for value the same.
//
//   AWQ (gemm)      qweight int32 [in, out / 8]: eight outputs a word, in the order 0 2 4 6 1 3 5
//   7;
//                   qzeros the same [groups, out / 8]; scales [groups, out]
//   GPTQ            qweight int32 [in * bits / 32, out], qzeros int32 [groups, out * bits / 32],
//                   scales [groups, out], g_idx [in] (a column's group); 4 or 8 bits. The first
//                   format stores zero - 1
//   pack-quantized  weight_packed int32 [out, in * bits / 32], weight_scale [out, groups],
//                   weight_zero_point int32 [out * bits / 32, groups], weight_shape; 4 or 8 bits,
//                   stored with an offset of 8 or 128
//   fp8             weight F8_E4M3 [out, in] times weight_scale_inv [out / 128, in / 128]: given
//                   as BF16
//
// Weight (o, i) = (q - zero) * scale. Where blocks cannot hold that (columns of a group out of
// order, groups that are no multiple of 32, scales in F32), the values themselves are given, in the
// scales' dtype.
#pragma once

#include <string>

#include "model_files/hf/matrix.h"
#include "model_files/hf/quantization.h"
#include "model_files/hf/safetensors.h"

namespace weft::model_files::hf {

// The tensors of one linear layer; nullptr: not there.
struct LinearParts {
    const SafeTensor *weight, *qweight, *qzeros, *scales, *g_idx, *packed, *scale, *scale_inv,
        *zero_point, *shape, *packed_g_idx;
};

// kCorrupt: parts that are missing or don't fit; names the folder and the module.
Result<MatrixPtr> PackedLinear(const LinearParts& parts, const Quantization& quantization,
                               const TensorFiles& files, const std::string& module,
                               const std::string& folder);

// gpt-oss: blocks U8 [experts, rows, groups, 16], byte k of a group holds elements 2 k and 2 k + 1;
// scales U8 [experts, rows, groups], E8M0. As DType::kMXFP4, [experts * rows, groups * 32].
Result<MatrixPtr> Mxfp4Experts(const SafeTensor& blocks, const SafeTensor& scales,
                               const TensorFiles& files, const std::string& folder);

}  // namespace weft::model_files::hf
