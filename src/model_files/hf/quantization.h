// How a folder's weights are quantized: the quantization_config of its config.json.
//
// Supported: none; "fp8" (F8_E4M3, scales by block, row or tensor); "awq" (gemm layout, 4 bits);
// "gptq" (4 and 8 bits); "compressed-tensors" in the format pack-quantized (W4A16, W8A16); "mxfp4"
// as gpt-oss has it. Any other method or format is refused here, by name and before anything is
// loaded, with the list of those. Which layers are left out needs no list: those have a plain
// weight.
#pragma once

#include <string>

#include "base/result.h"
#include "model_files/hf/json.h"

namespace weft::model_files::hf {

enum class Method { kNone, kFp8, kAwq, kGptq, kCompressed, kMxfp4 };

struct Quantization {
    Method method = Method::kNone;
    int bits = 16;
    int64_t group = 0;                       // columns that share a scale; 0: a whole row
    bool zero_plus_one = false;              // GPTQ's first format stores zero - 1
    bool any_order = false;                  // columns of a group may stand apart: g_idx says which
    int64_t block_rows = 0, block_cols = 0;  // fp8: weights that share a scale; 0: by its shape
};

// `config`: that of the text model.
Result<Quantization> ReadQuantization(const Config& config);

// Of files beside a config.json without one: hf_quant_config.json (ModelOpt), quantize_config.json
// (older AutoGPTQ), quant_config.json (older AutoAWQ). No such file: kNone.
Result<Quantization> ReadQuantizationFile(const std::string& folder);

}  // namespace weft::model_files::hf
