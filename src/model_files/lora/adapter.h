// An adapter on disk, in the format of the package PEFT: DIR/adapter_config.json and
// DIR/adapter_model.safetensors (or, of older versions, DIR/adapter_model.bin: hf/torch_file.h).
//
// The rows of B for Q and K have two orders: on disk the order of the Hugging Face model, in memory
// the order of the GGUF model (Family::pairs in model_files/hf/family.h).
// Input is hostile: model_files/hf/safetensors.h, model_files/hf/json.h.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/hf/safetensors.h"
#include "model_files/lora/adapter_config.h"
#include "model_files/lora/plan.h"
#include "model_files/model_file.h"
#include "model_files/weight_file.h"

namespace weft::model_files {

// The file of the tensors in the folder of an adapter, under either name. If neither exists: the
// path with the first name, under which WriteAdapter writes.
std::string AdapterTensorsPath(const std::string& folder);

// Reads adapter_config.json, and sets `words.from`. Errors: kNotFound, kCorrupt; kUnsupported,
// naming the key, for an adapter that `use` does not support (for training: DoRA, biases).
Result<AdapterConfig> ReadAdapterConfig(const std::string& folder, LoraUse use = LoraUse::kTrain);

// A module for which an adapter's file has tensors.
struct AdapterModule {
    std::string module;      // as in LoraTarget::module
    std::string saved;       // the name in the Hugging Face model for which the adapter was made
    bool embedding = false;  // A and B belong to an embedding
    int64_t a_cols = 0, b_rows = 0;  // of A and B in the file; b_rows: of a matrix in `wholes`
};
struct AdapterNames {
    std::vector<AdapterModule> modules;
    std::vector<AdapterModule> wholes;  // tensors that are not of an A or B; `module`: their name
};
// Sorted by name. Tensor names may lack PEFT's "base_model.model." or the model's "model.",
// and may have the adapter's name as in PEFT's memory ("lora_A.default.weight").
// Errors: kNotFound; kCorrupt: no such tensors, or two with one meaning.
Result<AdapterNames> ReadAdapterNames(const std::string& folder);

// The tensors of an adapter. Thread: any.
class AdapterFile {
  public:
    // Errors: kNotFound, kCorrupt; kUnsupported for tensors that are not in the plan.
    static Result<AdapterFile> Open(const LoraPlan& plan);

    const std::string& path() const { return file_.path(); }
    const WeightFile& file() const { return file_; }
    // Reads rows [row, row + rows) of A or B of a target, all columns, in the model's row order.
    // Errors: kIo; kCorrupt, with the tensor's name: a value is not finite.
    Status Read(const LoraTarget& target, bool is_b, int64_t row, int64_t rows,
                std::span<float> out) const;
    // A target of any form, whole: A [experts, rank, cols] and B [rows, rank], in the model's row
    // order.
    Result<std::vector<float>> ReadWhole(const LoraTarget& target, bool is_b) const;
    // The lengths of a DoRA target's rows.
    Result<std::vector<float>> ReadLengths(const LoraTarget& target) const;
    // Rows [row, row + rows) of a tensor that replaces `tensor`, in the model's row order. Its
    // shape is checked by CheckWhole.
    Status CheckWhole(const LoraWhole& whole, const TensorInfo& tensor) const;
    Status ReadRows(const LoraWhole& whole, const TensorInfo& tensor, int64_t row, int64_t rows,
                    std::span<float> out) const;

  private:
    AdapterFile(WeightFile file, std::vector<hf::SafeTensor> tensors)
        : file_(std::move(file)), tensors_(std::move(tensors)) {}
    const hf::SafeTensor* Find(const std::string& name) const;
    Status Check(const std::string& name, int64_t rows, int64_t cols) const;
    Status CheckTarget(const LoraTarget& target) const;
    // Reads rows of `cols` elements in the order of the model's rows.
    Status ReadInOrder(const hf::SafeTensor& tensor, int64_t cols, int64_t pairs_of, int64_t row,
                       int64_t rows, std::span<float> out) const;
    // The same for rows of a target, which are runs of the tensor's rows.
    Status ReadRuns(const hf::SafeTensor& tensor, int64_t cols, const LoraTarget& target,
                    int64_t row, int64_t rows, std::span<float> out) const;
    // The tensor, which has `count` float elements.
    Result<const hf::SafeTensor*> FindFloats(const std::string& name, int64_t count) const;
    Result<std::vector<float>> Values(const std::string& name, int64_t count) const;
    Status CheckFinite(const hf::SafeTensor& tensor, std::span<const float> values) const;
    WeightFile file_;
    std::vector<hf::SafeTensor> tensors_;
};

// The output of the adapted model. PEFT calls it the task type. The task type selects the class of
// transformers that loads the adapter.
enum class AdapterTask { kText, kScores, kFeatures };

// An adapter's files without the tensors' values.
struct AdapterPlan {
    struct Tensor {
        std::string name, saved;  // in the model, and in the file
        int64_t pairs_of = 0;     // as in LoraTarget
    };
    std::vector<Tensor> tensors;  // A and B of all targets, and the score head, trained whole
    std::string config;           // text of adapter_config.json
};

// Reads the config.json of the source's folder, if any: its class determines the names. model: the
// base model's name in the config. Errors: as hf::LayerPathOf; errors of config.json.
Result<AdapterPlan> PlanAdapter(const ModelSource& source, const LoraPlan& plan,
                                const std::string& model, AdapterTask task = AdapterTask::kText);

// Writes the adapter tensors of `trained`, and its score head. Existing files are replaced when the
// new files are complete. Errors: kNotFound (`trained` lacks a tensor of the plan); errors of the
// source and of OutputFile.
Status WriteAdapter(const ModelSource& trained, const AdapterPlan& plan, const std::string& folder);

}  // namespace weft::model_files
