// What people call models and their weights' types: names of repositories, of files and of other
// programs, brought to a known shape and to what 'weft quantize' would do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quantize/plan.h"

namespace weft::plan {

struct ShapeWord {
    std::string shape;    // a file of models/shapes
    std::string type;     // as it was written; empty: unsaid
    int64_t context = 0;  // where another name has another one than the shape's file; 0: that
};

// "hf:unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF:UD-Q4_K_XL" -> {"qwen3-30b-a3b", "UD-Q4_K_XL"};
// "mlx-community/DeepSeek-V3.1-8bit" -> {"deepseek-v3", "8bit"}; "qwen3:8b" -> {"qwen3-8b", ""}.
// The owner, case and punctuation don't count, nor do words that leave the shape as it is
// (Instruct, GGUF, dates, ...). Null: some word of it is not known.
std::optional<ShapeWord> FindShape(std::string_view word);

// The shapes and other names of them, in order.
std::vector<std::string> ShapeNames();
// Those that begin most like `word`; all where none does.
std::vector<std::string> NamesLike(std::string_view word);

// What each tensor becomes in files of a type: those of 'weft quantize', and by the nearest of
// these
//     UD-Q4_K_XL, Q4_K_L and their kin    mixes of other people's scripts
//     4bit, 6bit, 8bit, ...               groups of 64 with two 16-bit numbers, embeddings as well
//     FP8, INT8, AWQ, GPTQ, INT4, NVFP4   embeddings and logits stay in BF16
// Errors: kUsage, naming the types.
Result<quantize::QuantizeOptions> FindWeightType(std::string_view type);

}  // namespace weft::plan
