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
    std::string name;     // the known name that the word begins with: "qwen3-coder-30b"
    std::string model;    // the main name of that model: "qwen3-coder-30b-a3b"
    std::string shape;    // a file of models/shapes: "qwen3-30b-a3b"
    std::string type;     // as it was written; empty: none
    std::string variant;  // words of other weights in the same shape: "base", "it qat"; empty: none
    bool runs = true;     // false: the shape stands in for an architecture that Weft lacks
    int64_t context = 0;  // where the model's differs from the shape's file; 0: the file's
};

// "hf:unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF:UD-Q4_K_XL" -> qwen3-30b-a3b, "UD-Q4_K_XL";
// "mlx-community/DeepSeek-V3.1-8bit" -> deepseek-v3, "8bit"; "qwen3:8b" -> qwen3-8b, "".
// Letters compare in any case, punctuation does not count, and the owner and words such as
// Instruct and GGUF are skipped; so is Ollama's type "latest". Every number (version, date, size)
// must be one of the known name: null for any other word or number, never a similar model.
std::optional<ShapeWord> FindShape(std::string_view word);

// All known names, sorted: those of models/shapes and of its aliases.json.
std::vector<std::string> ShapeNames();
// The known name that `word` misspells, or those that begin most like it; all where none does.
std::vector<std::string> NamesLike(std::string_view word);

// Whether GGUF files come in this type, one of 'weft quantize' or a mix such as UD-Q4_K_XL.
bool IsGgufType(std::string_view type);

// What each tensor becomes in files of a type: those of 'weft quantize', and by the nearest of
// these
//     UD-Q4_K_XL, Q4_K_L and their kin    mixes of other people's scripts
//     4bit, 6bit, 8bit, ...               groups of 64 with two 16-bit numbers, embeddings as well
//     FP8, INT8, AWQ, GPTQ, INT4, NVFP4   embeddings and logits stay in BF16
// Errors: kUsage, naming the types.
Result<quantize::QuantizeOptions> FindWeightType(std::string_view type);

}  // namespace weft::plan
