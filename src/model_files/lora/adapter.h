// An adapter on the disk, as the package PEFT writes and reads it: DIR/adapter_config.json and
// DIR/adapter_model.safetensors.
//
// Rows of B beside Q and K are in the order of the Hugging Face model there, and in that of the
// GGUF model in memory (model_files/hf/family.h: pairs).
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

// Rank, alpha, targets and `from`. Errors: kNotFound, kCorrupt; kUnsupported: an adapter that is
// more than two matrices beside each weight (DoRA, biases, ranks of their own for some modules),
// naming the key.
Result<LoraWords> ReadAdapterConfig(const std::string& folder);

// The tensors of an adapter. Thread: any.
class AdapterFile {
  public:
    // Errors: kNotFound, kCorrupt; kUnsupported: tensors that are not in the plan.
    static Result<AdapterFile> Open(const LoraPlan& plan);

    // Rows [row, row + rows) of A or B of a target, all columns, in the model's order.
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

// Writes the adapter that `trained` has beside the model. Files that are there are replaced, once
// the new ones are complete. model: what the config names as its base.
Status WriteAdapter(const ModelSource& trained, const LoraPlan& plan,
                    const std::string& model, const std::string& folder);

}  // namespace weft::model_files
