// Quantized linear layers of a folder as matrices: the packed integers of each layout become Weft's
// blocks of 32 columns (DType::kW4, kW8), with exactly the same values.
//
//   AWQ (gemm)      qweight int32 [in, out / 8]: eight outputs per word, in the order
//                   0 2 4 6 1 3 5 7;
//                   qzeros packed likewise [groups, out / 8]; scales [groups, out]
//   GPTQ            qweight int32 [in * bits / 32, out], qzeros int32 [groups, out * bits / 32],
//                   scales [groups, out], g_idx [in] (a column's group); 4 or 8 bits. The first
//                   format stores zero - 1 (8 bits: modulo 256)
//   pack-quantized  weight_packed int32 [out, in * bits / 32], weight_scale [out, groups],
//                   weight_zero_point int32 [out * bits / 32, groups], weight_shape; 4 or 8 bits,
//                   stored with an offset of 8 or 128
//   int-quantized   weight I8 [out, in], weight_scale, weight_zero_point I8 (of the scales'
//                   shape); also bitsandbytes, whose SCB F32 [out] is 127 times the scale
//
// Weight (o, i) = (q - zero) * scale. If blocks of 32 columns cannot represent the weights (groups
// of scattered columns, groups whose size is not a multiple of 32, F32 scales), the matrix holds
// plain values in the scales' dtype.
//
// 8-bit and 4-bit floats (scaled.cc); the last words say the dtype in memory:
//
//   fp8, modelopt,  weight F8_E4M3 [out, in] times a scale per block, row, group of a row, or
//   float-quantized tensor, in floats or E8M0. FP8 if each 64 columns share a scale, else BF16
//   NVFP4           codes U8 [out, in / 2], E4M3 scales [out, in / 16], and a tensor-wide scale,
//                   by which compressed-tensors divides and ModelOpt multiplies. NVFP4
//   MXFP4           codes U8 [out, in / 2], E8M0 scales [out, in / 32]. MXFP4
//
// Codes into a codebook, or codes with an offset (affine.cc), with the dtype in memory:
//
//   MLX             weight U32 [out, in * bits / 32], scales and biases [out, groups]: w = q *
//                   scale + bias. Up to 4 bits: Q4_1, 5 bits: Q5_1, others BF16
//   bitsandbytes    weight U8 [out * in / 2, 1], absmax per 64 weights in reading order, which may
//                   itself be quantized. BF16
#pragma once

#include <functional>
#include <string>

#include "model_files/hf/matrix.h"
#include "model_files/hf/quantization.h"
#include "model_files/hf/safetensors.h"

namespace weft::model_files::hf {

// The tensors of one linear layer; nullptr: absent.
struct LinearParts {
    const SafeTensor *weight, *qweight, *qzeros, *scales, *g_idx, *packed, *scale, *scale_inv,
        *zero_point, *shape, *packed_g_idx;
    const SafeTensor *global_scale, *scale_2;  // of compressed-tensors; of ModelOpt
    const SafeTensor* biases;                  // of MLX
    // Tensors of bitsandbytes.
    const SafeTensor *absmax, *quant_map, *nested_absmax, *nested_quant_map, *quant_state, *scb,
        *format;
    const SafeTensor* column_scale;  // of ModelOpt's AWQ: pre_quant_scale
    // Number of equal parts of the rows: the experts in a tensor of three dims, or the shards of a
    // fused projection. A block that shares a scale lies in one part.
    bool exact = false;  // values in float32 rather than BF16, if the type has no blocks for them
    int64_t pieces = 1;
};

// find(name): the tensor MODULE.name of the layer ("weight_scale"), or nullptr.
LinearParts FindLinearParts(const std::function<const SafeTensor*(const std::string&)>& find);

// Errors: kCorrupt for parts that are missing or do not match, naming the folder and the module.
Result<MatrixPtr> PackedLinear(const LinearParts& parts, const Scheme& scheme,
                               const TensorFiles& files, const std::string& module,
                               const std::string& folder);

// gpt-oss's experts: blocks U8 [experts, rows, groups, 16], where byte k of a group holds elements
// 2 k and 2 k + 1; scales U8 [experts, rows, groups], E8M0. Returned as DType::kMXFP4, [experts *
// rows, groups * 32].
Result<MatrixPtr> Mxfp4Experts(const SafeTensor& blocks, const SafeTensor& scales,
                               const TensorFiles& files, const std::string& folder);

}  // namespace weft::model_files::hf
