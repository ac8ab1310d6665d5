// A LoRA adapter (Hu et al. 2021) for a model: the matrices W [n, k] that get two small matrices A
// [r, k] and B [n, r], so that y = x . W^T + scale * (x . A^T) . B^T. scale is alpha / r, or alpha
// / sqrt(r) (rank-stabilized: Kalajdzievski 2023); r and alpha may differ from matrix to matrix.
// Names, initial values and the scale follow the package PEFT, so that each program can read the
// adapters of the other.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model_files/hf/row_runs.h"
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

// The use of an adapter that is planned. Training has A and B for matrices of layers only. An
// adapter that is applied or merged may also change experts, the embedding and the output matrix,
// replace tensors, and scale rows (DoRA: Liu et al. 2024).
enum class LoraUse : uint8_t { kTrain, kApply };

// A matrix of the model that gets an adapter.
struct LoraTarget {
    enum class Form : uint8_t {
        kMatrix,
        kEmbedding,  // the file has A and B of the transposed matrix
        kExperts,    // one tensor for all experts: the file has their A and B interleaved
        kTurned,     // kExperts in a folder that has [experts, in, out]
        kKeys        // a stack of each head's transposed rows: each has its rows of B as A
    };
    std::string tensor;  // "blk.0.attn_q.weight"
    std::string module;  // "model.layers.0.self_attn.q_proj"
    int64_t rows = 0, cols = 0;
    int64_t pairs_of = 0;  // as in model_files/hf/export.h; also for the rows of B
    int64_t rank = 0;
    double alpha = 0, scale = 0;
    // Only for kApply. `rows` may be some of the tensor's rows, from `row_begin` on.
    Form form = Form::kMatrix;
    int64_t row_begin = 0;
    bool dora = false;    // each row has a trained length
    int64_t experts = 1;  // of kExperts and kTurned, with rows / experts rows each
    // The target's rows of B, which queries, keys and values may share, or an expert's gate and up.
    hf::RowRuns runs = {};
    hf::RowRuns columns = {};  // of A
    double factor = 1;         // the model's values divided by the folder's; part of `scale`
    std::string NameA() const;
    std::string NameB() const;
    std::string NameOfLengths() const;  // of dora
};

// A tensor that an adapter replaces: a module that was trained whole, or a bias.
struct LoraWhole {
    std::string tensor;           // "blk.0.attn_norm.weight"
    std::string name;             // "model.layers.0.input_layernorm.weight"
    int64_t pairs_of = 0;         // as in LoraTarget
    float add = 0;                // the file's values minus the model's
    std::vector<int64_t> rows{};  // if not empty, only these rows are replaced
    int64_t height = 0;           // rows of a score head that the model lacks
    double factor = 1;            // the model's values divided by the file's
    std::string FileName() const;
};

// A module's name in the classes of transformers 5, from the name in a folder: they call the router
// of Mixtral and of its relatives, and the output matrix of GPT-NeoX, differently.
std::string ModuleInMemory(std::string name);
// "layers.3.mlp" from "transformer.h.3.mlp": the name below the text model of any class.
std::string WithoutPath(std::string name);

// Whether the folder has experts as [experts, in, out], and the rows of gate and up alternate: in
// the family whose experts have biases (gpt-oss).
bool HasPairedExperts(const ModelSource& source);

// Behind the name of a module in the name of its replaced rows.
inline constexpr std::string_view kTokenRows = ".token_adapter.trainable_tokens_delta";

struct LoraPlan {
    LoraOptions words;  // with rank, alpha etc. from the adapter's folder, if any
    std::vector<LoraTarget> targets;
    std::vector<LoraWhole> wholes;     // of kApply only
    std::set<std::string> partial;     // "q_proj": some layers with this module are no targets
    std::set<std::string> of_experts;  // "gate_proj": single experts have such a module
    // "model.vision_tower.": beginnings of modules for which the file has tensors, but which are
    // not parts of the text model.
    std::set<std::string> left_out;
    // Names for target_modules, without duplicates: "q_proj", or, of partial modules,
    // "model.layers.0.self_attn.q_proj".
    std::vector<std::string> Modules() const;
    const LoraTarget* Find(std::string_view tensor) const;
    // Whether it changes the embedding or the output matrix.
    bool ChangesEnds() const;
    // A warning that names the ignored parts; "": none.
    std::string LeftOutText() const;
};

// Ignores adapter tensors in the source. The targets of an adapter in a folder are the matrices for
// which its file has tensors. As in PEFT, a name in target_modules that no layer has is ignored.
// Errors: kUsage for invalid options, or a target that no layer has; kUnsupported for a model
// without Hugging Face names, or tensors for another module; as ReadAdapterConfig and
// ReadAdapterNames.
Result<LoraPlan> PlanLora(const model_files::ModelSource& source, const LoraOptions& words,
                          LoraUse use = LoraUse::kTrain);

}  // namespace weft::model_files
