// An adapter on disk, in the format of the package PEFT: DIR/adapter_config.json and
// DIR/adapter_model.safetensors.
//
// The rows of B for Q and K have two orders: on disk the order of the Hugging Face model, in memory
// the order of the GGUF model (Family::pairs in model_files/hf/family.h).
// Input is hostile: model_files/hf/safetensors.h, model_files/hf/json.h.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/hf/safetensors.h"
#include "model_files/lora/plan.h"
#include "model_files/model_file.h"
#include "model_files/weight_file.h"

namespace weft::model_files {

// Reads rank, alpha and targets, and sets `from`. Errors: kNotFound, kCorrupt; kUnsupported, naming
// the key, for an adapter that is not two matrices of rank r for each weight (DoRA, biases,
// module-specific ranks).
Result<LoraOptions> ReadAdapterConfig(const std::string& folder);

// The tensors of an adapter. Thread: any.
class AdapterFile {
  public:
    // Errors: kNotFound, kCorrupt; kUnsupported for tensors that are not in the plan.
    static Result<AdapterFile> Open(const LoraPlan& plan);

    const std::string& path() const { return file_.path(); }
    // Reads rows [row, row + rows) of A or B of a target, all columns, in the model's row order.
    // Errors: kIo; kCorrupt, with the tensor's name: a value is not finite.
    Status Read(const LoraTarget& target, bool is_b, int64_t row, int64_t rows,
                std::span<float> out) const;

  private:
    AdapterFile(WeightFile file, std::vector<hf::SafeTensor> tensors)
        : file_(std::move(file)), tensors_(std::move(tensors)) {}
    const hf::SafeTensor* Find(const std::string& name) const;
    Status Check(const std::string& name, int64_t rows, int64_t cols) const;
    WeightFile file_;
    std::vector<hf::SafeTensor> tensors_;
};

// Writes the adapter tensors of `trained`. Existing files are replaced once the new ones are
// complete. model: the base model's name in the config.
Status WriteAdapter(const ModelSource& trained, const LoraPlan& plan, const std::string& model,
                    const std::string& folder);

}  // namespace weft::model_files
