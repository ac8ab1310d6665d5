// Merges a model and an adapter: W + scale * B . A, for engines without adapter support.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model_files/source_over.h"
#include "train/lora/lora.h"

namespace weft::train {

// The model with the adapter of a folder merged in: adapted matrices are float32, the others
// unchanged. Holds the adapter in memory.
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
    std::map<size_t, Pair> pairs_;  // by the tensor's place
};

}  // namespace weft::train
