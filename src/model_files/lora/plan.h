// A LoRA adapter (Hu et al. 2021) beside a model: which of its matrices W [n, k] have the two small
// ones A [r, k] and B [n, r], so that y = x . W^T + scale * (x . A^T) . B^T. scale is alpha / r, or
// alpha / sqrt(r) (rank-stabilized: Kalajdzievski 2023). Names, initial values and the scale are
// those of the package PEFT, so that adapters go either way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model_files {

// Adapters' tensors are named so, as PEFT does; no tensor of a model is.
inline constexpr const char* kAdapterPrefix = "base_model.";

struct LoraWords {
    int64_t rank = 0;  // 0: all weights are trained, unless `from` says otherwise
    double alpha = 8;
    // all, attn, mlp, or modules of a layer as PEFT takes them: "q_proj,v_proj".
    std::string targets = "all";
    bool rslora = false;
    std::string from;   // an adapter's folder to go on from, which says all of the above
    uint64_t seed = 0;  // of A

    bool on() const { return rank > 0 || !from.empty(); }
};

// A matrix of the model that gets an adapter.
struct LoraTarget {
    std::string tensor;  // "blk.0.attn_q.weight"
    std::string module;  // "model.layers.0.self_attn.q_proj"
    int64_t rows = 0, cols = 0;
    int64_t pairs_of = 0;  // model_files/hf/export.h: of B's rows, too
    std::string NameA() const;
    std::string NameB() const;
};

struct LoraPlan {
    LoraWords words;  // with what the folder says
    std::vector<LoraTarget> targets;
    double scale() const;
    std::vector<std::string> Modules() const;  // "q_proj", each once
    const LoraTarget* Find(std::string_view tensor) const;
};

// Adapters in the source are passed over. Errors: kUsage: words that make no sense, or a target
// that no layer has; kUnsupported: a model without Hugging Face names; those of ReadAdapterConfig.
Result<LoraPlan> PlanLora(const model_files::ModelSource& source, const LoraWords& words);

}  // namespace weft::model_files
