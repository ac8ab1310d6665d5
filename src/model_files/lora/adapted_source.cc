#include "model_files/lora/adapted_source.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "model_files/hf/json.h"
#include "model_files/lora/adapter_config.h"
#include "model_files/score_head.h"
#include "tensor/quant.h"

namespace weft::model_files {
namespace {

constexpr std::string_view kLoraPrefix = "lora.", kParts = "abdgtw";
// A stack of one row per expert would be a stack of vectors.
constexpr int64_t kLeastRank = 2;

DType AdapterType(DType weight) {
    return weight == DType::kF32 || weight == DType::kF16 ? DType::kF32 : DType::kBF16;
}

bool IsVector(const TensorInfo& tensor) {
    return tensor.dim_count == 1;
}

// The model's tensor with the name, or for the output matrix of a model without one the embedding.
const TensorInfo* Adaptable(const ModelSource& source, std::string_view name) {
    const TensorInfo* tensor = source.FindTensor(name);
    return tensor == nullptr && name == kOutputTensor ? source.FindTensor(kEmbeddingTensor)
                                                      : tensor;
}

// Whether `part` has the shape of that part of an adapter for `of`. (A model's own file may use any
// tensor names.)
bool Fits(const ModelSource& source, const TensorInfo& part, size_t number, char which,
          const TensorInfo& of, std::string_view name) {
    if (number < 1 || number > kMostAdapters) return false;
    if (part.name != AdaptedTensor(number, which, name)) return false;
    const DType type = AdapterType(of.dtype);
    const int64_t experts = of.dim_count == 3 ? of.dims[2] : 1;
    if (which == 'a') {
        const TensorInfo* const b = source.FindTensor(AdaptedTensor(number, 'b', name));
        return b != nullptr && !IsVector(of) && part.cols == of.cols && b->rows == of.rows &&
               part.rows == b->cols * experts && part.dtype == type && b->dtype == type;
    }
    if (which == 'b') {
        const TensorInfo* const a = source.FindTensor(AdaptedTensor(number, 'a', name));
        return a != nullptr && Fits(source, *a, number, 'a', of, name);
    }
    if (which == 'w') {
        return of.dim_count == 2 && part.rows == of.rows && part.cols == of.cols &&
               part.dtype == type;
    }
    const int64_t rows = IsVector(of) ? of.cols : of.rows;
    return part.rows == rows && part.cols == 1 && part.dtype == DType::kF32;
}

}  // namespace

bool IsOfAdapter(std::string_view name) {
    return name.starts_with(kLoraPrefix) || name.starts_with("base_model.model.");
}

Result<NamedAdapter> ParseAdapter(const std::string& word) {
    const size_t equals = word.find('=');
    if (equals != word.npos && equals > 0 && equals + 1 < word.size()) {
        return NamedAdapter{word.substr(0, equals), word.substr(equals + 1)};
    }
    return MakeError(ErrorCode::kUsage,
                     "--lora {}: expected NAME=FOLDER: the adapter's name in requests, and the "
                     "folder of its adapter_config.json",
                     word);
}

std::string AdaptedTensor(size_t number, char part, std::string_view tensor) {
    return fmt::format("{}{}.{}.{}", kLoraPrefix, number, part, tensor);
}

Result<std::unique_ptr<AdaptedSource>> AdaptedSource::Make(std::unique_ptr<ModelSource> model,
                                                           std::span<const NamedAdapter> adapters) {
    if (adapters.size() > kMostAdapters) {
        return MakeError(ErrorCode::kUsage, "{} adapters; at most {} are supported",
                         adapters.size(), kMostAdapters);
    }
    const std::vector<TensorInfo>& own = model->tensors();
    const auto taken = std::ranges::find_if(
        own, [](const TensorInfo& tensor) { return tensor.name.starts_with(kLoraPrefix); });
    if (taken != own.end()) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: the model has a tensor '{}', a name that is reserved for adapters",
                         model->name(), hf::Shown(taken->name));
    }
    std::unique_ptr<AdaptedSource> made(new AdaptedSource(std::move(model)));
    std::set<std::string> names;
    for (const NamedAdapter& adapter : adapters) {
        if (!names.insert(adapter.name).second) {
            return MakeError(ErrorCode::kUsage, "--lora {}={}: another adapter has the name '{}'",
                             adapter.name, adapter.folder, adapter.name);
        }
        WEFT_TRY(made->Add(adapter));
    }
    return made;
}

std::vector<const WeightFile*> AdaptedSource::AdapterFiles() const {
    std::vector<const WeightFile*> files;
    for (size_t i = 0; i < adapters_.size(); ++i) {
        files.insert(files.end(), {&configs_[i], &adapters_[i]->file()});
    }
    return files;
}

std::vector<std::string> AdaptedSource::Warnings() const {
    std::vector<std::string> warnings;
    for (const auto& adapter : adapters_) {
        const std::string left_out = adapter->plan().LeftOutText();
        if (!left_out.empty()) warnings.push_back(left_out);
    }
    return warnings;
}

Status AdaptedSource::Add(const NamedAdapter& adapter) {
    WEFT_ASSIGN(auto merged, MergedSource::Make(under(), adapter.folder));
    WEFT_ASSIGN(WeightFile config, WeightFile::Open(adapter.folder + kAdapterConfigName));
    configs_.push_back(std::move(config));
    for (const auto& [target, change] : merged->changes()) {
        if (!IsOfScoreHead(merged->tensors()[target].name)) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "--lora {}={}: the adapter has a score head, which a model has once. "
                         "'weft merge MODEL --lora DIR -o OUT' writes a model with it",
                         adapter.name, adapter.folder);
    }
    adapters_.push_back(std::move(merged));
    for (const auto& [target, change] : adapters_.back()->changes()) {
        AddParts(*adapters_.back(), target, change);
    }
    AddShifts(*adapters_.back());
    return {};
}

void AdaptedSource::AddPart(const Place& place, const std::string& tensor, DType dtype,
                            int64_t rows, int64_t cols) {
    AddMatrix(AdaptedTensor(place.adapter + 1, place.part, tensor), dtype, rows, cols);
    places_.push_back(place);
}

void AdaptedSource::AddParts(const MergedSource& merged, size_t target,
                             const MergedSource::Change& change) {
    const TensorInfo& tensor = merged.tensors()[target];
    const DType type = AdapterType(Adaptable(under(), tensor.name)->dtype);
    Place place{adapters_.size() - 1, target, 'a'};
    const auto add = [&](char part, const std::string& name, DType dtype, int64_t rows,
                         int64_t cols) {
        place.part = part;
        AddPart(place, name, dtype, rows, cols);
    };
    if (IsVector(tensor)) {
        if (!tensor.name.ends_with(".bias")) {
            return add('g', tensor.name, DType::kF32, tensor.cols, 1);
        }
        return add('d', tensor.name, DType::kF32, tensor.cols, 1);
    }
    if (change.whole.has_value() || tensor.name == kEmbeddingTensor) {
        return add('w', tensor.name, type, tensor.rows, tensor.cols);
    }
    const bool stack = tensor.dim_count == 3;
    std::map<std::string_view, int64_t> ranks;  // modules that are rows of the tensor
    bool dora = false;
    for (const LoraTarget& one : change.targets) {
        ranks[one.module] = one.rank;
        dora = dora || one.dora;
    }
    for (const auto& [module, rank] : ranks) {
        place.rank = stack ? std::max({place.rank, rank, kLeastRank}) : place.rank + rank;
    }
    add('a', tensor.name, type, place.rank * (stack ? tensor.dims[2] : 1), tensor.cols);
    add('b', tensor.name, type, tensor.rows, place.rank);
    if (dora) add('g', tensor.name, DType::kF32, tensor.rows, 1);
}

// Each bias of a matrix with DoRA's factors, or of a replaced one, and each replaced bias, has a
// `t`.
void AdaptedSource::AddShifts(const MergedSource& merged) {
    constexpr std::string_view kWeight = ".weight", kBias = ".bias";
    for (size_t at = 0; at < under().tensors().size(); ++at) {
        const TensorInfo& bias = under().tensors()[at];
        if (!IsVector(bias) || !bias.name.ends_with(kBias)) continue;
        std::string matrix = bias.name.substr(0, bias.name.size() - kBias.size());
        matrix += kWeight;
        Place place{adapters_.size() - 1, at, 't'};
        const TensorInfo* const found = merged.FindTensor(matrix);
        const auto changed =
            found == nullptr
                ? merged.changes().end()
                : merged.changes().find(static_cast<size_t>(found - merged.tensors().data()));
        const auto is_dora = [](const LoraTarget& target) { return target.dora; };
        if (changed != merged.changes().end() &&
            std::ranges::any_of(changed->second.targets, is_dora)) {
            place.matrix = changed->first;
        }
        place.replaced = changed != merged.changes().end() && changed->second.whole.has_value();
        const bool has_factors = place.matrix.has_value() || place.replaced;
        if (!has_factors && !merged.changes().contains(at)) continue;
        AddPart(place, bias.name, DType::kF32, bias.cols, 1);
    }
}

Status AdaptedSource::PairValues(const Place& place, int64_t cols, int64_t begin, int64_t count,
                                 std::span<float> out) const {
    const MergedSource& merged = *adapters_[place.adapter];
    WEFT_ASSIGN(const MergedSource::Pairs pairs, merged.PairsOf(place.target));
    const TensorInfo& tensor = merged.tensors()[place.target];
    const bool is_b = place.part == 'b';
    const int64_t each = tensor.dim_count == 3 ? tensor.dims[1] : tensor.rows;
    std::vector<float> gains(is_b ? static_cast<size_t>(count) : 0, 1);
    const auto is_dora = [](const LoraPair& pair) { return !pair.lengths.empty(); };
    if (is_b && std::ranges::any_of(*pairs, is_dora)) {
        WEFT_ASSIGN(gains, merged.Gains(place.target, begin, count));
    }
    for (int64_t i = 0; i < count; ++i) {
        const int64_t at = begin + i, r = at % place.rank;
        const int64_t row = is_b ? at : at / place.rank * each;  // of the tensor
        const bool stack = tensor.dim_count == 3;
        const auto values = out.subspan(static_cast<size_t>(i * cols), static_cast<size_t>(cols));
        for (const LoraPair& pair : *pairs) {
            const int64_t own = is_b || stack ? row - pair.row_begin : 0;
            if (own < 0 || own >= pair.rows) continue;
            if (is_b) {
                const float scale = pair.scale * gains[static_cast<size_t>(i)];
                for (int64_t c = 0; c < pair.rank; ++c) {
                    values[static_cast<size_t>(pair.rank_begin + c)] =
                        pair.b[static_cast<size_t>(own * pair.rank + c)] * scale;
                }
            } else if (r >= pair.rank_begin && r < pair.rank_begin + pair.rank) {
                const int64_t from =
                    own / (pair.rows / pair.experts) * pair.rank + r - pair.rank_begin;
                std::copy_n(pair.a.begin() + from * cols, cols, values.begin());
            }
        }
    }
    return {};
}

Status AdaptedSource::ColumnValues(const Place& place, int64_t begin, std::span<float> out) const {
    const MergedSource& merged = *adapters_[place.adapter];
    const auto count = std::ssize(out);
    const TensorInfo& changed = merged.tensors()[place.target];
    std::vector<float> gains(out.size(), place.replaced ? 0.0f : 1.0f);
    if (place.matrix.has_value() || !IsVector(changed)) {
        WEFT_ASSIGN(gains, merged.Gains(place.matrix.value_or(place.target), begin, count));
    }
    if (!IsVector(changed)) {
        std::ranges::copy(gains, out.begin());
        return {};
    }
    const TensorInfo& own = under().tensors()[place.target];
    std::vector<std::byte> raw(static_cast<size_t>(RowBytes(own.dtype, count)));
    std::vector<float> before(out.size());
    WEFT_TRY(under().ReadRows(own, 0, 1, begin, count, raw, nullptr));
    DequantizeRow(own.dtype, raw, before);
    WEFT_TRY(merged.ReadFloats(place.target, begin, out));
    for (size_t i = 0; i < out.size(); ++i) {
        if (place.part != 'g') {
            out[i] -= gains[i] * before[i];
        } else if (before[i] != 0) {
            out[i] /= before[i];
        } else if (out[i] != 0) {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: replaces {}, whose element {} is 0, which no factor changes. "
                             "'weft merge MODEL --lora DIR -o OUT' writes a model with it, which "
                             "you can use",
                             merged.path(), changed.name, begin + static_cast<int64_t>(i));
        }
    }
    return {};
}

Result<std::vector<float>> AdaptedSource::Values(const Place& place, int64_t cols, int64_t begin,
                                                 int64_t count, uint64_t* bytes_read) const {
    std::vector<float> values(static_cast<size_t>(count * cols));
    if (place.part == 'w') {
        const MergedSource& merged = *adapters_[place.adapter];
        WEFT_TRY(merged.ReadRows(merged.tensors()[place.target], begin, count, 0, cols,
                                 std::as_writable_bytes(std::span(values)), bytes_read));
    } else if (place.part == 'a' || place.part == 'b') {
        WEFT_TRY(PairValues(place, cols, begin, count, values));
    } else {
        WEFT_TRY(ColumnValues(place, begin, values));
    }
    return values;
}

Status AdaptedSource::ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                              int64_t col_count, std::span<std::byte> out,
                              uint64_t* bytes_read) const {
    const TensorInfo& tensor = tensors()[index];
    const Place& place = places_[index - under().tensors().size()];
    WEFT_ASSIGN(const std::vector<float> rows,
                Values(place, tensor.cols, row_begin, row_count, bytes_read));
    const auto bytes = static_cast<size_t>(RowBytes(tensor.dtype, col_count));
    for (int64_t i = 0; i < row_count; ++i) {
        QuantizeRow(tensor.dtype,
                    std::span(rows).subspan(static_cast<size_t>(i * tensor.cols + col_begin),
                                            static_cast<size_t>(col_count)),
                    out.subspan(static_cast<size_t>(i) * bytes, bytes));
    }
    if (bytes_read != nullptr && place.part != 'w') *bytes_read += out.size();
    return {};
}

Result<std::unique_ptr<ModelSource>> OpenAdapted(const std::string& model,
                                                 std::span<const NamedAdapter> adapters) {
    WEFT_ASSIGN(std::unique_ptr<ModelSource> source, OpenModel(model));
    if (adapters.empty()) return source;
    WEFT_ASSIGN(std::unique_ptr<AdaptedSource> made,
                AdaptedSource::Make(std::move(source), adapters));
    return std::unique_ptr<ModelSource>(std::move(made));
}

AdaptedParts AdaptedPartsOf(const ModelSource& source) {
    AdaptedParts parts;
    for (const TensorInfo& tensor : source.tensors()) {  // lora.NUMBER.PART.NAME
        if (!tensor.name.starts_with(kLoraPrefix)) continue;
        size_t number = 0;
        const char* const end = tensor.name.data() + tensor.name.size();
        const auto [rest, error] =
            std::from_chars(tensor.name.data() + kLoraPrefix.size(), end, number);
        const std::string_view behind(rest, end);
        if (error != std::errc() || behind.size() < 4 || behind[0] != '.' || behind[2] != '.') {
            continue;
        }
        const char part = behind[1];
        const std::string name(behind.substr(3));
        const TensorInfo* const of = Adaptable(source, name);
        if (kParts.find(part) == kParts.npos || of == nullptr) continue;
        if (Fits(source, tensor, number, part, *of, name)) {
            parts[name][static_cast<int32_t>(number)] += part;
        }
    }
    return parts;
}

int32_t FirstTokenOf(const ModelSource& source, int32_t adapter) {
    const TensorInfo* const table =
        source.FindTensor(AdaptedTensor(static_cast<size_t>(adapter), 'w', kEmbeddingTensor));
    return table == nullptr ? 0 : static_cast<int32_t>(adapter * table->rows);
}

std::string FingerprintOfAdapters(const ModelSource& source) {
    FingerprintMaker maker;
    bool any = false;
    for (const TensorInfo& tensor : source.tensors()) {
        if (!tensor.name.starts_with(kLoraPrefix)) continue;
        any = true;
        maker.Add(std::as_bytes(std::span(tensor.name)));
        maker.Add(static_cast<uint64_t>(tensor.rows));
        maker.Add(static_cast<uint64_t>(tensor.cols));
    }
    return any ? maker.Finish() : "";
}

}  // namespace weft::model_files
