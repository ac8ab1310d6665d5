// Merges an adapter into a model (W + scale * B . A), for programs that cannot load adapters.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model_files/source_over.h"
#include "train/lora/lora.h"

namespace weft::train {

// The model with an adapter merged in. Matrices with an adapter are float32; other tensors are
// unchanged. Holds the adapter in memory. adapter: the adapter's folder.
class MergedSource final : public model_files::SourceOver {
  public:
    // Errors: those of LoraSource.
    static Result<std::unique_ptr<MergedSource>> Make(
        std::unique_ptr<model_files::ModelSource> model, const std::string& adapter);

    size_t merged() const { return pairs_.size(); }

  private:
    struct Pair {
        std::vector<float> a, b;  // [rank, cols], [rows, rank]
    };
    MergedSource(std::unique_ptr<model_files::ModelSource> model, LoraPlan plan)
        : SourceOver(std::move(model)), plan_(std::move(plan)) {}
    Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                   int64_t col_count, std::span<std::byte> out,
                   uint64_t* bytes_read) const override;

    const LoraPlan plan_;
    std::map<size_t, Pair> pairs_;  // by index of the tensor
};

}  // namespace weft::train
