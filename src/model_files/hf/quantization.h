// Reads how a folder's weights are quantized: the quantization_config of its config.json.
//
// Supported: none; "fp8" (F8_E4M3, scales by block, row or tensor); "awq" (gemm layout, 4 bits);
// "gptq" (2, 3, 4 and 8 bits); "auto-round" (packed as GPTQ, AWQ or compressed-tensors);
// "compressed-tensors" (pack-quantized, int-, float- and naive-quantized, nvfp4- and
// mxfp4-pack-quantized, mxfp8-quantized, and a mix of these by module); "modelopt" (FP8, NVFP4,
// MXFP4, MXFP8, integers and mixes); "bitsandbytes" (nf4, fp4, int8); Apple's MLX (affine, mxfp4,
// mxfp8, nvfp4); gpt-oss's "mxfp4". Any other method or format is refused here, before anything is
// loaded, with its name and this list. A config's lists of unquantized layers are ignored, because
// such a layer has a plain weight.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model_files/hf/json.h"
#include "tensor/dtype.h"
#include "tokenizer/regex.h"

namespace weft::model_files::hf {

enum class Method { kNone, kFp8, kAwq, kGptq, kCompressed, kMxfp4, kModelOpt, kBitsAndBytes, kMlx };

// MLX's `mode`.
enum class MlxMode { kAffine, kMxfp4, kMxfp8, kNvfp4 };

// How a linear layer is packed.
struct Scheme {
    Method method = Method::kNone;
    int bits = 16;
    int64_t group = 0;           // columns that share a scale; 0: the whole row
    bool zero_plus_one = false;  // GPTQ's first format stores zero - 1
    bool any_order = false;      // groups may have scattered columns, listed in g_idx
    // fp8: size of blocks that share a scale; 0: from the shape of the scales
    int64_t block_rows = 0, block_cols = 0;
    MlxMode mode = MlxMode::kAffine;
    bool floats = false;  // compressed-tensors: E4M3 or E2M1 codes instead of integers
    bool zeros = false;   // compressed-tensors: its integers have zero points
    bool operator==(const Scheme&) const = default;
};

// The dtype in memory of a layer whose shape is a multiple of the dtype's blocks; kBF16: plain
// values.
DType MemoryType(const Scheme& scheme);

// A scheme for the modules that a regular expression matches.
struct Override {
    tokenizer::Regex regex;
    bool anywhere = false;  // may match inside a name, not only from its start
    Scheme scheme = {};
};

// The inherited members are the default scheme: the first scheme, if the config has several. The
// default scheme applies to modules that no member below names, unless only_named is set.
struct Quantization : Scheme {
    std::unordered_map<std::string, Scheme> modules;  // by module name
    std::vector<Override> overrides;
    std::map<std::string, Scheme> classes;  // "Linear", "Embedding"
    bool only_named = false;  // a quantized module that no member above names is an error
    std::string file_text;    // of ReadQuantizationFile's file

    // The scheme of a module; nullptr: none (only_named). Exact names take precedence over
    // expressions, and expressions over classes. Tries the folder's name of the module, then the
    // name with other prefixes of text models. Each name is also tried as the fused module that
    // contains it (qkv_proj, gate_up_proj).
    const Scheme* Of(const std::string& module) const;
};

// `config`: the config of the text model. text: of its file, for the order of expressions.
Result<Quantization> ReadQuantization(const Config& config, std::string_view text = {});

// Reads the quantization from a separate file, for a config.json that has none:
// hf_quant_config.json (ModelOpt), quantize_config.json (older AutoGPTQ), quant_config.json (older
// AutoAWQ). No such file: kNone.
Result<Quantization> ReadQuantizationFile(const std::string& folder);

// Readers of one method each. `config`: the object that describes the quantization.
Result<Quantization> ReadCompressed(const Config& config);
Result<Quantization> ReadModelOpt(const Config& config);
Result<Quantization> ReadAutoRound(const Config& config, std::string_view text);
Result<Quantization> ReadMlx(const Config& config);
Result<Quantization> ReadBitsAndBytes(const Config& config);

// The keys of an object in the order of the file's text, in which other readers try expressions.
// Keys that the text does not have as JSON is usually written come last.
std::vector<std::string> KeysInOrder(const Config& object, std::string_view text);
// Columns per group; -1 or absent: 0, the whole row.
Result<int64_t> ReadGroupSize(const Config& config);
// A regular expression for module names.
Result<tokenizer::Regex> ReadExpression(const Config& config, std::string_view expression);
// Makes the error "WHERE: WHAT is not supported. Supported: ...".
Error RefusedQuantization(const Config& config, std::string_view what);

}  // namespace weft::model_files::hf
