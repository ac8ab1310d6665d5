// A model with adapters beside it, as one ModelSource: what training with LoRA begins from.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/model_file.h"
#include "formats/lora/adapter.h"
#include "train/lora/lora.h"

namespace weft::train {

// A model's tensors, then A and B of each target, in float32. Without an adapter to go on from, A
// is uniform in +-1 / sqrt(columns), as PEFT has it, by seed, name and place alone, and B is zero.
class LoraSource final : public formats::ModelSource {
  public:
    static Result<std::unique_ptr<LoraSource>> Make(std::unique_ptr<formats::ModelSource> model,
                                                    const LoraWords& words);

    const std::string& name() const override { return model_->name(); }
    const formats::Metadata& meta() const override { return model_->meta(); }
    std::string folder() const override { return model_->folder(); }
    const std::vector<formats::TensorInfo>& tensors() const override { return tensors_; }
    const formats::TensorInfo* FindTensor(std::string_view tensor) const override;
    Status ReadRows(const formats::TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override;
    // Of the model, and of what the adapters begin with.
    Result<std::string> Fingerprint() const override;

  private:
    LoraSource(std::unique_ptr<formats::ModelSource> model, LoraPlan plan)
        : model_(std::move(model)), plan_(std::move(plan)) {}
    void AddTensor(const std::string& name, int64_t rows, int64_t cols);
    Status ReadRow(size_t adapter, int64_t row, std::span<float> out) const;

    std::unique_ptr<formats::ModelSource> model_;
    LoraPlan plan_;
    std::optional<formats::AdapterFile> file_;
    std::vector<formats::TensorInfo> tensors_;  // A, B, A, B, ... behind the model's own
};

// The source itself where the words ask for no adapters, or it has them.
Result<std::unique_ptr<formats::ModelSource>> WithAdapters(
    std::unique_ptr<formats::ModelSource> source, const LoraWords& words);

}  // namespace weft::train
