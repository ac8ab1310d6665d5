// The initial model of LoRA training: a model and its adapters as one ModelSource.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "model_files/lora/adapter.h"
#include "model_files/source_over.h"
#include "train/lora/lora.h"

namespace weft::train {

// The model's tensors, then A and B of each target, in float32. If training does not continue an
// adapter, A is uniformly random in +-1 / sqrt(columns), as in PEFT, and depends only on the seed,
// the tensor's name and the element's position; B is zero.
class LoraSource final : public model_files::SourceOver {
  public:
    static Result<std::unique_ptr<LoraSource>> Make(std::unique_ptr<model_files::ModelSource> model,
                                                    const LoraOptions& words);

    // The files of the model and of the adapter that training continues.
    std::vector<const model_files::WeightFile*> Files() const override;
    // Depends on the model and the adapter options.
    Result<std::string> Fingerprint() const override;

  private:
    LoraSource(std::unique_ptr<model_files::ModelSource> model, LoraPlan plan)
        : SourceOver(std::move(model)), plan_(std::move(plan)) {}
    Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                   int64_t col_count, std::span<std::byte> out,
                   uint64_t* bytes_read) const override;
    Status ReadRow(size_t adapter, int64_t row, std::span<float> out) const;

    LoraPlan plan_;  // A, B, A, B, ... of its targets follow the model's tensors
    std::optional<model_files::AdapterFile> file_;
};

// Adds adapters to `source`. Returns `source` itself if the options request no adapters, or if it
// has them already.
Result<std::unique_ptr<model_files::ModelSource>> WithAdapters(
    std::unique_ptr<model_files::ModelSource> source, const LoraOptions& words);

}  // namespace weft::train
