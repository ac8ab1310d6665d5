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
//   int-quantized   weight I8 [out, in], weight_scale, weight_zero_point I8 (the same shape); also
//                   bitsandbytes, whose SCB F32 [out] is 127 times the scale
//
// Weight (o, i) = (q - zero) * scale. Where blocks cannot hold that (columns of a group out of
// order, groups that are no multiple of 32, scales in F32), the values themselves are given, in the
// scales' dtype.
//
// Floats of 8 and 4 bits (scaled.cc):
//
//   fp8, modelopt,  weight F8_E4M3 [out, in] times a scale for each block, row, group of a row, or
//   float-quantized tensor, in floats or E8M0: FP8 where 64 columns have one scale, else BF16
//   NVFP4           codes U8 [out, in / 2], E4M3 scales [out, in / 16] and a scale of the tensor,
//                   which compressed-tensors divides by and ModelOpt multiplies with: NVFP4
//   MXFP4           codes the same, E8M0 scales [out, in / 32]: MXFP4
//
// Codes in a book or with an offset (affine.cc):
//
//   MLX             weight U32 [out, in * bits / 32], scales and biases [out, groups]: w = q *
//                   scale + bias. Up to 4 bits: Q4_1, 5 bits: Q5_1, others BF16
//   bitsandbytes    weight U8 [out * in / 2, 1], absmax of each 64 weights in reading order, which
//                   may be codes themselves: BF16
#pragma once

#include <functional>
#include <string>

#include "model_files/hf/matrix.h"
#include "model_files/hf/quantization.h"
#include "model_files/hf/safetensors.h"

namespace weft::model_files::hf {

// The tensors of one linear layer; nullptr: not there.
struct LinearParts {
    const SafeTensor *weight, *qweight, *qzeros, *scales, *g_idx, *packed, *scale, *scale_inv,
        *zero_point, *shape, *packed_g_idx;
    const SafeTensor *global_scale, *scale_2;  // of compressed-tensors, of ModelOpt
    const SafeTensor* biases;                  // of MLX
    // Of bitsandbytes.
    const SafeTensor *absmax, *quant_map, *nested_absmax, *nested_quant_map, *quant_state, *scb;
    const SafeTensor* column_scale;  // of ModelOpt's AWQ: pre_quant_scale
    // Parts of the rows, of equal height, whose blocks of scales begin anew: experts in one tensor
    // of three dims, shards of a fused projection.
    int64_t pieces = 1;
};

// find(name) gives a tensor of the layer by its name behind the module's, "weight_scale", or
// nullptr.
LinearParts FindLinearParts(const std::function<const SafeTensor*(const std::string&)>& find);

// kCorrupt: parts that are missing or don't fit; names the folder and the module.
Result<MatrixPtr> PackedLinear(const LinearParts& parts, const Scheme& scheme,
                               const TensorFiles& files, const std::string& module,
                               const std::string& folder);

// gpt-oss: blocks U8 [experts, rows, groups, 16], byte k of a group holds elements 2 k and 2 k + 1;
// scales U8 [experts, rows, groups], E8M0. As DType::kMXFP4, [experts * rows, groups * 32].
Result<MatrixPtr> Mxfp4Experts(const SafeTensor& blocks, const SafeTensor& scales,
                               const TensorFiles& files, const std::string& folder);

}  // namespace weft::model_files::hf
