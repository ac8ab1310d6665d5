// Chooses the new type of each tensor of a model, before anything is read or written.
//
// The first of these that applies determines a tensor's type: IsKept (not quantized); the first
// rule whose expression matches a part of the tensor's name; --output-type and --embedding-type;
// with `pure`, the base type of the file type; the mix of the file type (MixedType). Fallback()
// then replaces a type that does not fit the tensor's columns. A replaced type that comes from a
// rule is an error.
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
    std::string pattern;  // PCRE2, matches any part of the name
    DType type;
};

struct QuantizeOptions {
    FileType type;
    std::vector<TensorRule> rules;
    std::optional<DType> output, embedding;
    bool pure = false;
    bool allow_requantize = false;  // quantize even tensors that are already quantized
    const Importance* importance = nullptr;
    // Plan only sizes. A missing importance matrix is then no error, and IQ types are mixed as if
    // there were one. A rule may match no tensor, and Fallback() replaces its type, too.
    bool sizes_only = false;
    // The next step in errors about a missing importance matrix.
    const char* importance_advice =
        "--imatrix FILE. Many a model's page has one; else 'llama-imatrix -m MODEL.gguf -f TEXT -o "
        "FILE' of llama.cpp makes it";
};

struct PlannedTensor {
    const model_files::TensorInfo* from;
    DType to;
    uint64_t bytes;
    bool fell_back;                        // the requested type does not fit the tensor's columns
    const std::vector<float>* importance;  // may be null
};

struct QuantizePlan {
    FileType type;
    std::vector<PlannedTensor> tensors;  // in the model's order
    uint64_t bytes = 0;                  // total
    size_t fallen_back = 0;
    size_t without_importance = 0;  // number of quantized tensors that have no entry in the given
                                    // importance matrix
};

// Errors: kUsage (a rule matches no tensor or is not a valid expression; a tensor has no importance
// matrix, but its type needs one); kDenied (tensors are already quantized); kCorrupt (the
// importance matrix belongs to another model).
Result<QuantizePlan> PlanQuantize(const model_files::ModelSource& source,
                                  const QuantizeOptions& options);

}  // namespace weft::quantize
