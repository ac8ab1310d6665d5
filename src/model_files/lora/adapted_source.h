// A model with any number of LoRA adapters as one ModelSource, for inference that chooses an
// adapter per sequence.
//
// The source has the model's tensors, and for each tensor that an adapter changes some of these
// parts (AdaptedTensor), from which program::Adapt makes y of the model's y = x . W^T + bias:
//
//     a, b   A and B. B includes the adapter's scale, and DoRA's factors. For experts: one below
//            the other, with zeros for an expert without an adapter, or with one of a smaller rank
//     w      the whole matrix: of a replaced tensor, or of an embedding with A and B
//     g      a column: DoRA's factors; of a norm's weight, the replaced one / the model's
//     d, t   a column, of a bias: the adapter's - the model's; the adapter's - g * the model's.
//            (Beside a replaced matrix, whose product loses the model's bias, g is 0.)
//
// A, B and matrices are BF16, or F32 if the model's weight is F32 or F16, so that they are no less
// precise than the weight. Columns are F32. Rows are in the order of the model's rows. Input is
// hostile: adapter.h.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model_files/lora/merged_source.h"
#include "model_files/source_over.h"
#include "model_files/weight_file.h"

namespace weft::model_files {

// An adapter to load with a model, and its name in requests.
struct NamedAdapter {
    std::string name, folder;
    bool operator==(const NamedAdapter&) const = default;
};
inline constexpr size_t kMostAdapters = 256;

// Parses "NAME=FOLDER". Errors: kUsage.
Result<NamedAdapter> ParseAdapter(const std::string& word);

// The name of a part of adapter `number` (from 1) for the model's tensor `tensor`.
std::string AdaptedTensor(size_t number, char part, std::string_view tensor);
// Whether a tensor has such a name, or PEFT's name for a matrix of an adapter in training.
bool IsOfAdapter(std::string_view name);

class AdaptedSource final : public SourceOver {
  public:
    // Errors: kUsage (two adapters of one name, or too many); kUnsupported (an adapter for a matrix
    // that Weft can't adapt); as PlanLora and AdapterFile, with the folder.
    static Result<std::unique_ptr<AdaptedSource>> Make(std::unique_ptr<ModelSource> model,
                                                       std::span<const NamedAdapter> adapters);

    std::vector<const WeightFile*> AdapterFiles() const override;
    // Warnings about tensors of adapters that are ignored.
    std::vector<std::string> Warnings() const;

  private:
    struct Place {
        size_t adapter;
        size_t target;  // index of the tensor in the merged model
        char part;
        int64_t rank = 0;  // of a and b
        // Of t: the index of the matrix with DoRA's factors; nullopt: none.
        std::optional<size_t> matrix{};
        bool replaced = false;  // of t: the matrix is
    };
    explicit AdaptedSource(std::unique_ptr<ModelSource> model) : SourceOver(std::move(model)) {}
    Status Add(const NamedAdapter& adapter);
    void AddParts(const MergedSource& merged, size_t target, const MergedSource::Change& change);
    void AddShifts(const MergedSource& merged);
    void AddPart(const Place& place, const std::string& tensor, DType dtype, int64_t rows,
                 int64_t cols);
    // The values of rows [begin, begin + count) of a part, all columns.
    Result<std::vector<float>> Values(const Place& place, int64_t cols, int64_t begin,
                                      int64_t count, uint64_t* bytes_read) const;
    Status PairValues(const Place& place, int64_t cols, int64_t begin, int64_t count,
                      std::span<float> out) const;
    Status ColumnValues(const Place& place, int64_t begin, std::span<float> out) const;
    Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                   int64_t col_count, std::span<std::byte> out,
                   uint64_t* bytes_read) const override;

    std::vector<std::unique_ptr<MergedSource>> adapters_;  // each borrows under()
    std::vector<WeightFile> configs_;                      // adapter_config.json of each adapter
    std::vector<Place> places_;                            // of the tensors that follow the model's
};

// OpenModel, with adapters if there are any.
Result<std::unique_ptr<ModelSource>> OpenAdapted(const std::string& model,
                                                 std::span<const NamedAdapter> adapters);

// For each tensor of the model that adapters change: the parts by the adapter's number, as in
// "abg". (The output matrix of a model that uses its embedding is "output.weight".)
using AdaptedParts = std::map<std::string, std::map<int32_t, std::string>>;
AdaptedParts AdaptedPartsOf(const ModelSource& source);

// For an adapter with its own embedding: its tokens' ids begin at this row of all embeddings, one
// table behind the other. 0: the adapter uses the model's embedding.
int32_t FirstTokenOf(const ModelSource& source, int32_t adapter);

// A hash of the names and shapes of the adapters' tensors; "": no adapters.
std::string FingerprintOfAdapters(const ModelSource& source);

}  // namespace weft::model_files
