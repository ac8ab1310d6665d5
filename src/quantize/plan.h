// Which type each tensor of a model gets, before anything is read or written.
//
// In this order, the first that says something counts: tensors that are kept as they are (IsKept);
// the first rule whose expression is found in the tensor's name; --output-type and
// --embedding-type; with `pure` the base type; the mix of the file type. Then what doesn't fit a
// tensor's columns falls back (Fallback); types that a rule gives must fit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/model_file.h"
#include "quantize/file_type.h"
#include "quantize/importance.h"

namespace weft::quantize {

struct TensorRule {
    std::string pattern;  // PCRE2, found anywhere in the name
    DType type;
};

struct QuantizeOptions {
    FileType type;
    std::vector<TensorRule> rules;
    std::optional<DType> output, embedding;
    bool pure = false;
    bool allow_requantize = false;  // tensors that are quantized already are rounded again
    const Importance* importance = nullptr;
    // Only sizes are asked for: types that need an importance matrix are given without, and the IQ
    // types mix as if there were one.
    bool sizes_only = false;
    // What to do where a type needs an importance matrix, of a command that takes one.
    const char* importance_advice =
        "--imatrix FILE. Many a model's page has one; else 'llama-imatrix -m MODEL.gguf -f TEXT -o "
        "FILE' of llama.cpp makes it";
};

struct PlannedTensor {
    const model_files::TensorInfo* from;
    DType to;
    uint64_t bytes;
    bool fell_back;                        // its columns don't fit what was wanted
    const std::vector<float>* importance;  // may be null
};

struct QuantizePlan {
    FileType type;
    std::vector<PlannedTensor> tensors;  // in the model's order
    uint64_t bytes = 0;                  // of all of them
    size_t fallen_back = 0;
    size_t without_importance = 0;  // of those that are rounded, where a matrix is given
};

// kUsage: a rule that fits no tensor or is no expression, a type that needs an importance matrix
// for a tensor without one; kDenied: tensors that are quantized
// already; kCorrupt: an importance matrix of another model.
Result<QuantizePlan> PlanQuantize(const model_files::ModelSource& source,
                                  const QuantizeOptions& options);

}  // namespace weft::quantize
