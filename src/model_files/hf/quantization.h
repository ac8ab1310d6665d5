// How a folder's weights are quantized: the quantization_config of its config.json.
//
// Supported: none; "fp8" (F8_E4M3, scales by block, row or tensor); "awq" (gemm layout, 4 bits);
// "gptq" (4 and 8 bits); "auto-round" (packed as GPTQ or AWQ); "compressed-tensors"
// (pack-quantized, int-, float- and naive-quantized, nvfp4- and mxfp4-pack-quantized,
// mxfp8-quantized, and a mix of these by module); "modelopt" (FP8, NVFP4, MXFP8 and mixes);
// "bitsandbytes" (nf4, fp4, int8); Apple's MLX (affine, mxfp4, mxfp8, nvfp4); "mxfp4" as gpt-oss
// has it. Any other method or format is refused here, by name and before anything is loaded, with
// the list of those. Which layers are left out needs no list: those have a plain weight.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model_files/hf/json.h"
#include "tensor/dtype.h"
#include "tokenizer/regex.h"

namespace weft::model_files::hf {

enum class Method {
    kNone,
    kFp8,
    kAwq,
    kGptq,
    kCompressed,
    kMxfp4,
    kModelOpt,
    kBitsAndBytes,
    kMlx
};

// MLX's `mode`.
enum class MlxMode { kAffine, kMxfp4, kMxfp8, kNvfp4 };

// How a linear layer is packed.
struct Scheme {
    Method method = Method::kNone;
    int bits = 16;
    int64_t group = 0;                       // columns that share a scale; 0: a whole row
    bool zero_plus_one = false;              // GPTQ's first format stores zero - 1
    bool any_order = false;                  // columns of a group may stand apart: g_idx says which
    int64_t block_rows = 0, block_cols = 0;  // fp8: weights that share a scale; 0: by its shape
    MlxMode mode = MlxMode::kAffine;
    bool floats = false;  // of compressed-tensors: E4M3 and E2M1, not integers
    bool zeros = false;   // of compressed-tensors: its integers have zero points
    bool operator==(const Scheme&) const = default;
};

// The type that a layer has in memory where its shape allows blocks; kBF16: values.
DType MemoryType(const Scheme& scheme);

// Modules that an expression names and that have a scheme of their own.
struct Override {
    tokenizer::Regex regex;
    bool anywhere = false;  // it may match inside of a name, not only from its begin
    Scheme scheme = {};
};

// Its own members are the scheme of modules that nothing below names, or the first of all.
struct Quantization : Scheme {
    std::unordered_map<std::string, Scheme> modules;  // by their names
    std::vector<Override> overrides;
    std::map<std::string, Scheme> classes;  // "Linear", "Embedding"
    bool only_named = false;  // a quantized module that nothing above names is an error

    // The scheme of a module; nullptr: none (only_named). Exact names come before expressions,
    // these before classes. The name is tried as the folder has it, then below the other prefixes
    // that text models have, each also as a part of a fused module (qkv_proj, gate_up_proj).
    const Scheme* Of(const std::string& module) const;
};

// `config`: that of the text model.
Result<Quantization> ReadQuantization(const Config& config);

// Of files beside a config.json without one: hf_quant_config.json (ModelOpt), quantize_config.json
// (older AutoGPTQ), quant_config.json (older AutoAWQ). No such file: kNone.
Result<Quantization> ReadQuantizationFile(const std::string& folder);

// Of one method, each in a file of its own. `config`: the object that describes it.
Result<Quantization> ReadCompressed(const Config& config);
Result<Quantization> ReadModelOpt(const Config& config);
Result<Quantization> ReadAutoRound(const Config& config);
Result<Quantization> ReadMlx(const Config& config);
Result<Quantization> ReadBitsAndBytes(const Config& config);

// -1 and absent: a whole row, 0.
Result<int64_t> ReadGroupSize(const Config& config);
// An expression that module names are matched with.
Result<tokenizer::Regex> ReadExpression(const Config& config, std::string_view expression);
// "WHERE: WHAT is not supported. Supported: ..."
Error RefusedQuantization(const Config& config, std::string_view what);

}  // namespace weft::model_files::hf
