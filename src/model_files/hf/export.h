// Writes a model as a Hugging Face folder that transformers loads: config.json, model.safetensors
// (or shards and their index), and the tokenizer's files.
//
// The inverse of folder.h, with the same tables (family.h): renames tensors, and reorders the rows
// of Q and K from pairs to halves. A model from a folder keeps its config.json and tokenizer files;
// for a model from a GGUF file, both are made from the metadata. In the source, one tensor holds a
// kind of matrix for all experts of a layer; in the folder, each expert has its own tensor.
// Errors: kUnsupported, naming the tensor, key or tokenizer kind, if the model would compute
// something else in transformers; those of OutputFile; kCancelled.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "hw/cpu.h"
#include "model_files/hf/json.h"
#include "model_files/hf/row_runs.h"
#include "model_files/hf/safetensors.h"
#include "model_files/model_file.h"

namespace weft::model_files::hf {

struct ExportOptions {
    SafeType type = SafeType::kBF16;       // kF32, kF16 or kBF16; routers are always F32
    uint64_t shard_bytes = 5'000'000'000;  // data bytes per file; more data is written to several
                                           // files
    bool replace = false;  // also into a folder with other files, whose model is replaced
    int threads = 1;
    CpuLevel level = CpuLevel::kReference;
    const std::atomic<bool>* stop = nullptr;  // set to stop the export; may be null
};

// Whether ExportFolder writes files of this name.
bool IsExportedName(std::string_view name);

// A tensor that is copied from a file.
struct ExportBytes {
    SafeType type;
    const WeightFile* file;
    uint64_t offset;
};

// A tensor to write, and its source.
struct ExportTensor {
    std::string name;  // "model.layers.0.self_attn.q_proj.weight"
    const TensorInfo* from;
    int64_t pairs_of = 0;   // head size whose neighboring pairs of rows become halves; 0: rows keep
                            // their order
    int64_t row_begin = 0;  // first row in `from`, which holds all experts
    int64_t rows = 0;
    bool matrix = false;  // a matrix even if it has one row; otherwise one row is a vector
    float add = 0;        // to each value: GGUF includes the 1 of Gemma's norms in the weights
    RowRuns runs = {};    // of the folder's tensor, if it holds more than this one
    bool turned = false;  // [in, out] in the folder
    std::optional<std::vector<int64_t>> shape{};  // the shape in the source's folder, if any
    std::optional<ExportBytes> bytes{};  // set by PlanCopy: bytes that are copied as they are
    // Only names for adapters set the next three members.
    RowRuns columns = {};  // of the folder's matrix
    double factor = 1;     // of the folder's values, which gives the model's
    bool keys = false;     // a stack of the transposed rows of each head
    bool routes = false;   // written as F32, as in transformers, so that rounding changes no choice
                           // of experts
};

// All of a new folder except the weights' values. The source's own folder is read only for this
// plan: whatever happens to that folder later, the new folder has the files as they were.
struct FolderPlan {
    Json config;
    std::vector<ExportTensor> tensors;         // point into the source
    std::map<std::string, std::string> files;  // texts by name: tokenizer, Python code, modules
    uint64_t bytes = 0;                        // of the weights and of `files`
};

// Checks everything that does not need weights: architecture, config.json, tensor names, tokenizer,
// and that `folder` is not the folder of `source`, which must outlive the plan. Errors: those of
// ExportFolder.
Result<FolderPlan> PlanFolder(const ModelSource& source, const std::string& folder, SafeType type);

// The same for a copy of the source's folder, with its config.json and these tensors. untied: they
// have an output matrix beside the embedding, whatever config.json says.
Result<FolderPlan> PlanCopy(const ModelSource& source, std::vector<ExportTensor> tensors,
                            const std::string& folder, SafeType type, bool untied);

// Writes the model into `folder`, which is created. Replaces a model there as a whole
// (FinishTogether): until all files are written, the old ones stay. kDenied: the folder has files,
// and options.replace is not set. plan: of options.type, and of a model with the same tensors,
// whose dtypes may differ; without it, ExportFolder makes the plan, so that nothing is written for
// a model that PlanFolder refuses.
Status ExportFolder(const ModelSource& source, const FolderPlan& plan, const std::string& folder,
                    const ExportOptions& options);
Status ExportFolder(const ModelSource& source, const std::string& folder,
                    const ExportOptions& options);

// The tensors to write, in the source's order, without tensors whose names begin with `skip`.
Result<std::vector<ExportTensor>> PlanExport(const ModelSource& source, std::string_view skip = {});
// The same for any family, also one that cannot be written: without the tensors that the folder
// does not hold, whole or as rows of one tensor. The layers are "model.layers." in all names.
Result<std::vector<ExportTensor>> FolderNames(const ModelSource& source, std::string_view skip);

// Where the family's class that generates text has the layers: "model." and "layers", or
// "transformer." and "h".
struct LayerPath {
    std::string before, layers;
};
Result<LayerPath> LayerPathOf(const ModelSource& source);
// The names that folders give the output matrix: "lm_head", "embed_out", ...
std::span<const char* const> OutputNames();
// The output matrix in that class: "lm_head"; "": the class generates no text.
Result<std::string> OutputModuleOf(const ModelSource& source);
// The factors of the folder's embedding and output matrix that give the model's.
struct EndFactors {
    double embedding = 1, output = 1;
    bool tied = false;  // the folder has one matrix for both
};
// Nothing: a GGUF file whose weights have factors that it does not state.
Result<std::optional<EndFactors>> EndFactorsOf(const ModelSource& source);

// model_type of the config.json that ExportConfig makes. Reads less of the model than ExportConfig
// does.
Result<std::string> ExportType(const ModelSource& source);

// "float32", as in config.json.
std::string TypeWord(SafeType type);
// config.json of a model whose weights are written as `type`.
Result<Json> ExportConfig(const ModelSource& source, SafeType type);

}  // namespace weft::model_files::hf
