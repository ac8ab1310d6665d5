// A model and an adapter in one: W + scale * B . A, for engines that know nothing of adapters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/model_file.h"
#include "train/lora/lora.h"

namespace weft::train {

// The model with an adapter's folder merged into it: matrices that have an adapter are float32, the
// rest is as it was. Holds the adapter in memory.
class MergedSource final : public formats::ModelSource {
  public:
    // Errors: those of LoraSource.
    static Result<std::unique_ptr<MergedSource>> Make(std::unique_ptr<formats::ModelSource> model,
                                                      const std::string& adapter);

    const std::string& name() const override { return model_->name(); }
    const formats::Metadata& meta() const override { return model_->meta(); }
    std::string folder() const override { return model_->folder(); }
    const std::vector<formats::TensorInfo>& tensors() const override { return tensors_; }
    const formats::TensorInfo* FindTensor(std::string_view tensor) const override;
    Status ReadRows(const formats::TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override;
    Result<std::string> Fingerprint() const override { return model_->Fingerprint(); }

    size_t merged() const { return pairs_.size(); }

  private:
    struct Pair {
        const LoraTarget* target;
        std::vector<float> a, b;  // [rank, cols], [rows, rank]
    };
    MergedSource(std::unique_ptr<formats::ModelSource> model, LoraPlan plan)
        : model_(std::move(model)), plan_(std::move(plan)) {}
    const Pair* PairOf(const std::string& tensor) const;

    std::unique_ptr<formats::ModelSource> model_;
    const LoraPlan plan_;
    std::vector<Pair> pairs_;
    std::vector<formats::TensorInfo> tensors_;
};

}  // namespace weft::train
