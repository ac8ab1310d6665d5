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
    std::string variant;  // which weights of this shape: "base", "it qat"; empty: the usual ones
    bool runs = true;     // false: Weft lacks the architecture; `shape` is a similar one
    int64_t context = 0;  // most tokens, if the shape's file has another limit; else 0
};

// "hf:unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF:UD-Q4_K_XL" -> qwen3-30b-a3b, "UD-Q4_K_XL";
// "mlx-community/DeepSeek-V3.1-8bit" -> deepseek-v3, "8bit"; "qwen3:8b" -> qwen3-8b, "". Ignores
// case, punctuation, the owner, words such as Instruct and GGUF, and Ollama's type "latest". Every
// number (version, date, size) must be part of the known name. nullopt: the name has an unknown
// word or number; FindShape never returns a similar model instead.
std::optional<ShapeWord> FindShape(std::string_view word);

// All known names, sorted: the files of models/shapes and the names in its aliases.json.
std::vector<std::string> ShapeNames();
// The known name of which `word` is a misspelling; if no name is close, the known names that share
// the longest prefix with `word`; if no name shares three characters, all names.
std::vector<std::string> NamesLike(std::string_view word);

// Whether GGUF files have this weight type: a type of 'weft quantize', or a mix such as UD-Q4_K_XL.
bool IsGgufType(std::string_view type);

// Returns the options of 'weft quantize' for a weight type. `type` is a type of 'weft quantize', or
// one of these types of other programs, for which the nearest options are returned:
//     UD-Q4_K_XL, Q4_K_L, ...             mixes that other scripts write
//     4bit, 6bit, 8bit, ...               groups of 64 with two 16-bit numbers; also embeddings
//     FP8, INT8, AWQ, GPTQ, INT4, NVFP4   embeddings and logits stay in BF16
// Errors: kUsage; the message lists the types.
Result<quantize::QuantizeOptions> FindWeightType(std::string_view type);

}  // namespace weft::plan
