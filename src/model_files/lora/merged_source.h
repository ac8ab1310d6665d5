// Merges an adapter into a model (W + scale * B . A): for a model without the adapter, and for the
// parts of an adapter beside the model that depend on both (adapted_source.h).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model_files/lora/adapter.h"
#include "model_files/source_over.h"

namespace weft::model_files {

inline constexpr const char* kEmbeddingTensor = "token_embd.weight";
inline constexpr const char* kOutputTensor = "output.weight";

// A and B of some rows of a tensor.
struct LoraPair {
    float scale = 0;
    int64_t rank = 0, row_begin = 0, rows = 0, experts = 1;
    int64_t rank_begin = 0;      // after the ranks of other modules that are rows of a matrix
    std::vector<float> a, b;     // [experts, rank, cols], [rows, rank]
    std::vector<float> lengths;  // DoRA's factors of the rows; empty: none
};

// The model with an adapter merged in. Tensors that the adapter changes are float32; others are
// unchanged. If the model uses its embedding as the output matrix and the adapter changes one of
// them, the result has a separate output matrix, as PEFT's result does. Thread: any.
class MergedSource final : public SourceOver {
  public:
    // adapter: the adapter's folder. Errors: as PlanLora and AdapterFile.
    static Result<std::unique_ptr<MergedSource>> Make(std::unique_ptr<ModelSource> model,
                                                      const std::string& adapter);
    // Borrows the model.
    static Result<std::unique_ptr<MergedSource>> Make(const ModelSource& model,
                                                      const std::string& adapter);
    // plan: of the model's tensors.
    static Result<std::unique_ptr<MergedSource>> Make(std::unique_ptr<ModelSource> model,
                                                      const LoraPlan& plan);

    // The changes that the adapter makes to a tensor.
    struct Change {
        std::optional<LoraWhole> whole;   // replaces the tensor
        std::vector<LoraTarget> targets;  // add to its rows
    };
    // Changes by index in tensors().
    const std::map<size_t, Change>& changes() const { return changes_; }
    const std::string& path() const { return file_->path(); }
    const LoraPlan& plan() const { return plan_; }
    const WeightFile& file() const { return file_->file(); }

    using Pairs = std::shared_ptr<const std::vector<LoraPair>>;
    // The values of a changed tensor's targets. The last ones stay in memory.
    Result<Pairs> PairsOf(size_t index) const;
    // DoRA's factors of rows [begin, begin + count): length / |W + scale * B . A|. 1: of rows
    // without a length. Errors: kCorrupt (a row's length is zero).
    Result<std::vector<float>> Gains(size_t index, int64_t begin, int64_t count) const;

    // Elements [begin, begin + out.size()) of a vector.
    Status ReadFloats(size_t index, int64_t begin, std::span<float> out) const;

  private:
    MergedSource(std::unique_ptr<ModelSource> owned, const ModelSource& model)
        : SourceOver(model), owned_(std::move(owned)) {}
    static Result<std::unique_ptr<MergedSource>> Make(std::unique_ptr<ModelSource> owned,
                                                      const ModelSource& model,
                                                      const LoraPlan& plan);
    Change& ChangeOf(const std::string& tensor);
    // The model's tensor whose values a tensor has before the change.
    const TensorInfo& Below(size_t index) const;
    // Rows [begin, begin + count) before targets change them.
    Status ReadBelow(size_t index, int64_t begin, int64_t count, std::span<float> out,
                     uint64_t* bytes_read) const;
    // Adds A and B to one row, and returns DoRA's factor.
    Result<float> Apply(const std::vector<LoraPair>& pairs, size_t index, int64_t row,
                        std::span<float> values) const;
    // Calls each(row, values, factor) for changed rows, which it does not scale yet.
    Status EachRow(size_t index, int64_t begin, int64_t count, uint64_t* bytes_read,
                   const std::function<void(int64_t, std::span<float>, float)>& each) const;
    Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                   int64_t col_count, std::span<std::byte> out,
                   uint64_t* bytes_read) const override;

    std::unique_ptr<ModelSource> owned_;
    std::optional<AdapterFile> file_;
    std::map<size_t, Change> changes_;
    LoraPlan plan_;
    mutable std::mutex mutex_;
    mutable std::deque<std::pair<size_t, Pairs>> recent_;
};

}  // namespace weft::model_files
