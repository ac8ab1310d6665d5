// A model with any number of LoRA adapters as one ModelSource, for inference that chooses an
// adapter per sequence.
//
// The source has the model's tensors, and A and B of each matrix that an adapter changes
// (AdaptedTensor). A and B are BF16, or F32 if the model's weight is F32 or F16, so that they are
// no less precise than the weight. B includes the adapter's scale; the rows of B are in the order
// of the model's rows. Input is hostile: adapter.h.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model_files/lora/adapter.h"
#include "model_files/lora/plan.h"
#include "model_files/source_over.h"

namespace weft::model_files {

// An adapter to load with a model, and its name in requests.
struct NamedAdapter {
    std::string name, folder;
    bool operator==(const NamedAdapter&) const = default;
};
inline constexpr size_t kMostAdapters = 256;

// Parses "NAME=FOLDER". Errors: kUsage.
Result<NamedAdapter> ParseAdapter(const std::string& word);

// The name of A or B of adapter `number` (from 1) for the model's tensor `tensor`.
std::string AdaptedTensor(size_t number, bool is_b, std::string_view tensor);
// Whether a tensor has such a name, or PEFT's name for a matrix of an adapter in training.
bool IsOfAdapter(std::string_view name);

class AdaptedSource final : public SourceOver {
  public:
    // Errors: kUsage (two adapters of one name, or too many); kUnsupported (an adapter for a matrix
    // that Weft can't adapt); those of PlanLora and AdapterFile, with the folder.
    static Result<std::unique_ptr<AdaptedSource>> Make(std::unique_ptr<ModelSource> model,
                                                       std::span<const NamedAdapter> adapters);

    std::vector<std::string> Files() const override;

  private:
    struct Adapter {
        LoraPlan plan;
        AdapterFile file;
    };
    struct Place {
        size_t adapter;
        size_t target;
        bool is_b;
    };
    explicit AdaptedSource(std::unique_ptr<ModelSource> model) : SourceOver(std::move(model)) {}
    Status Add(const NamedAdapter& adapter);
    void AddTensor(const Place& place);
    Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                   int64_t col_count, std::span<std::byte> out,
                   uint64_t* bytes_read) const override;

    std::vector<Adapter> adapters_;
    std::vector<Place> places_;  // of the tensors that follow the model's
};

// OpenModel, with adapters if there are any.
Result<std::unique_ptr<ModelSource>> OpenAdapted(const std::string& model,
                                                 std::span<const NamedAdapter> adapters);

// For each tensor of the model that adapters change: the numbers of these adapters, ascending.
std::map<std::string, std::vector<int32_t>> AdaptersByTensor(const ModelSource& source);

// A hash of samples of each adapter's values; "": no adapters.
Result<std::string> FingerprintOfAdapters(const ModelSource& source);

}  // namespace weft::model_files
