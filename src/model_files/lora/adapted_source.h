// A model and any number of LoRA adapters beside it, as one ModelSource: what inference runs that
// chooses an adapter for each sequence.
//
// Beside the model's tensors stand A and B of each matrix that an adapter has (AdaptedTensor):
// BF16, but F32 beside weights of F32 and F16, so that they are no less exact than what they are
// added to. B comes with the adapter's scale in it, and in the order of rows that the model has.
// Input is hostile: adapter.h.
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

// An adapter to be had beside a model, and what requests call it.
struct NamedAdapter {
    std::string name, folder;
    bool operator==(const NamedAdapter&) const = default;
};
inline constexpr size_t kMostAdapters = 256;

// "NAME=FOLDER". Errors: kUsage.
Result<NamedAdapter> ParseAdapter(const std::string& word);

// The name of A or B of adapter `number` (from 1) beside the model's tensor.
std::string AdaptedTensor(size_t number, bool is_b, std::string_view tensor);

class AdaptedSource final : public SourceOver {
  public:
    // Errors: kUsage: two adapters of one name, or too many; kUnsupported: a matrix that Weft has
    // no place for; those of PlanLora and AdapterFile, which name the folder.
    static Result<std::unique_ptr<AdaptedSource>> Make(std::unique_ptr<ModelSource> model,
                                                       std::span<const NamedAdapter> adapters);

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
    std::vector<Place> places_;  // of the tensors behind the model's
};

// OpenModel, with adapters where there are any.
Result<std::unique_ptr<ModelSource>> OpenAdapted(const std::string& model,
                                                 std::span<const NamedAdapter> adapters);

// Of each of the model's tensors that has adapters: which, ascending.
std::map<std::string, std::vector<int32_t>> AdaptersByTensor(const ModelSource& source);

// A hash of the adapters' numbers in `source`, samples of each: "" where it has none.
Result<std::string> FingerprintOfAdapters(const ModelSource& source);

}  // namespace weft::model_files
