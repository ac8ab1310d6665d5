// Maps names of models and weight types, as repositories, files and other programs spell them, to
// known shapes and to the types of 'weft quantize'.
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
    std::string name;     // the known name at the start of the word: "qwen3-coder-30b"
    std::string model;    // the model's main name: "qwen3-coder-30b-a3b"
    std::string shape;    // a file of models/shapes: "qwen3-30b-a3b"
    std::string type;     // as written; empty: none
    std::string variant;  // other weights of the shape: "base", "it qat"; empty: none
    bool runs = true;     // false: Weft lacks the architecture; the shape is a stand-in
    int64_t context = 0;  // if it differs from the shape file's context; 0: the file's
};

// "hf:unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF:UD-Q4_K_XL" -> qwen3-30b-a3b, "UD-Q4_K_XL";
// "mlx-community/DeepSeek-V3.1-8bit" -> deepseek-v3, "8bit"; "qwen3:8b" -> qwen3-8b, "".
// Letters compare in any case, punctuation does not count, and the owner and words such as Instruct
// and GGUF are skipped; so is Ollama's type "latest". Every number (version, date, size) must be
// part of the known name. Null: the word has an unknown word or number; FindShape never returns a
// similar model.
std::optional<ShapeWord> FindShape(std::string_view word);

// All known names, sorted: the files of models/shapes and the names in its aliases.json.
std::vector<std::string> ShapeNames();
// The known name that `word` misspells; else the names with the longest common prefix; else all.
std::vector<std::string> NamesLike(std::string_view word);

// GGUF files exist in this type: a type of 'weft quantize', or a mix such as UD-Q4_K_XL.
bool IsGgufType(std::string_view type);

// Type of each tensor in files of a weight type: a type of 'weft quantize', or the nearest one to
//     UD-Q4_K_XL, Q4_K_L and their kin    mixes of other people's scripts
//     4bit, 6bit, 8bit, ...               groups of 64 with two 16-bit numbers, embeddings as well
//     FP8, INT8, AWQ, GPTQ, INT4, NVFP4   embeddings and logits stay in BF16
// Errors: kUsage, naming the types.
Result<quantize::QuantizeOptions> FindWeightType(std::string_view type);

}  // namespace weft::plan
