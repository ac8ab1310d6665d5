// Merges an adapter into a model (W + scale * B . A), for programs that cannot load adapters, and
// for adapters that do more than add to the matrices of layers (LoraUse::kMerged).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model_files/lora/adapter.h"
#include "model_files/source_over.h"
#include "train/lora/lora.h"

namespace weft::train {

// The model with an adapter merged in. Tensors that the adapter changes are float32; others are
// unchanged. If the model uses its embedding as the output matrix and the adapter changes one of
// them, the result has an output matrix of its own, as PEFT's. Holds the adapter in memory.
// adapter: the adapter's folder.
class MergedSource final : public model_files::SourceOver {
  public:
    // Errors: those of PlanLora and AdapterFile.
    static Result<std::unique_ptr<MergedSource>> Make(
        std::unique_ptr<model_files::ModelSource> model, const std::string& adapter);

    size_t merged() const { return changes_.size(); }

  private:
    struct Pair {
        float scale;
        int64_t rank, row_begin, rows, experts;
        std::vector<float> a, b;     // [experts, rank, cols], [rows, rank]
        std::vector<float> lengths;  // DoRA's, of the rows; empty: none
    };
    struct Change {
        std::vector<float> whole;  // replaces the tensor; empty: the model's values
        std::vector<Pair> pairs;
    };
    explicit MergedSource(std::unique_ptr<model_files::ModelSource> model)
        : SourceOver(std::move(model)) {}
    Status AddChanges(const LoraPlan& plan, const model_files::AdapterFile& file);
    Result<Change*> ChangeOf(const std::string& tensor);
    // The model's tensor whose values a tensor has before the change.
    const model_files::TensorInfo& Below(size_t index) const;
    Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                   int64_t col_count, std::span<std::byte> out,
                   uint64_t* bytes_read) const override;
    // One row, all columns.
    void Apply(const Change& change, int64_t row, std::span<float> values) const;

    std::map<size_t, Change> changes_;  // by index of the tensor
};

}  // namespace weft::train
