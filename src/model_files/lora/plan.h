// A LoRA adapter (Hu et al. 2021) for a model: the matrices W [n, k] that get two small matrices A
// [r, k] and B [n, r], so that y = x . W^T + scale * (x . A^T) . B^T. scale is alpha / r, or alpha
// / sqrt(r) (rank-stabilized: Kalajdzievski 2023). Names, initial values and the scale are those of
// the package PEFT, so that each program reads the other's adapters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model_files {

// Prefix of adapter tensors, as in PEFT; no tensor of a model has it.
inline constexpr const char* kAdapterPrefix = "base_model.";

struct LoraOptions {
    int64_t rank = 0;  // 0: full training, unless `from` is set
    double alpha = 8;
    // all, attn, mlp, or module names of a layer as in PEFT: "q_proj,v_proj".
    std::string targets = "all";
    bool rslora = false;
    std::string from;   // folder of an adapter to continue, which defines all of the above
    uint64_t seed = 0;  // for the initial values of A

    bool on() const { return rank > 0 || !from.empty(); }
};

// A matrix of the model that gets an adapter.
struct LoraTarget {
    std::string tensor;  // "blk.0.attn_q.weight"
    std::string module;  // "model.layers.0.self_attn.q_proj"
    int64_t rows = 0, cols = 0;
    int64_t pairs_of = 0;  // as in model_files/hf/export.h; also for the rows of B
    std::string NameA() const;
    std::string NameB() const;
};

struct LoraPlan {
    LoraOptions words;  // with rank, alpha etc. from the adapter's folder, if any
    std::vector<LoraTarget> targets;
    double scale() const;
    std::vector<std::string> Modules() const;  // "q_proj", without duplicates
    const LoraTarget* Find(std::string_view tensor) const;
};

// Ignores adapter tensors in the source. Errors: kUsage for invalid options, or a target that no
// layer has; kUnsupported for a model without Hugging Face names; those of ReadAdapterConfig.
Result<LoraPlan> PlanLora(const model_files::ModelSource& source, const LoraOptions& words);

}  // namespace weft::model_files
