#include "model_files/lora/adapted_source.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "model_files/hf/json.h"
#include "tensor/quant.h"

namespace weft::model_files {
namespace {

constexpr std::string_view kLoraPrefix = "lora.", kOfA = ".a.";

DType AdapterType(DType weight) {
    return weight == DType::kF32 || weight == DType::kF16 ? DType::kF32 : DType::kBF16;
}

// Whether `a` and its B have the shapes of an adapter for `beside`. (A model's own file may use any
// tensor names.)
bool IsPair(const ModelSource& source, const TensorInfo& a, size_t number,
            std::string_view beside) {
    const TensorInfo* const weight = source.FindTensor(beside);
    const TensorInfo* const b = source.FindTensor(AdaptedTensor(number, true, beside));
    if (weight == nullptr || b == nullptr || number < 1 || number > kMostAdapters) return false;
    const DType type = AdapterType(weight->dtype);
    const bool fits = a.rows == b->cols && a.cols == weight->cols && b->rows == weight->rows;
    return fits && a.dtype == type && b->dtype == type &&
           a.name == AdaptedTensor(number, false, beside);
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

std::string AdaptedTensor(size_t number, bool is_b, std::string_view tensor) {
    return fmt::format("{}{}.{}.{}", kLoraPrefix, number, is_b ? "b" : "a", tensor);
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

std::vector<std::string> AdaptedSource::Files() const {
    std::vector<std::string> paths = SourceOver::Files();
    for (const Adapter& adapter : adapters_) paths.push_back(adapter.file.path());
    return paths;
}

Status AdaptedSource::Add(const NamedAdapter& adapter) {
    LoraOptions words;
    words.from = adapter.folder;
    WEFT_ASSIGN(LoraPlan plan, PlanLora(under(), words));
    WEFT_ASSIGN(AdapterFile file, AdapterFile::Open(plan));
    adapters_.push_back({std::move(plan), std::move(file)});
    for (size_t target = 0; target < adapters_.back().plan.targets.size(); ++target) {
        AddTensor({adapters_.size() - 1, target, false});
        AddTensor({adapters_.size() - 1, target, true});
    }
    return {};
}

void AdaptedSource::AddTensor(const Place& place) {
    const LoraTarget& target = adapters_[place.adapter].plan.targets[place.target];
    const int64_t rank = target.rank;
    const int64_t rows = place.is_b ? target.rows : rank, cols = place.is_b ? rank : target.cols;
    AddMatrix(AdaptedTensor(place.adapter + 1, place.is_b, target.tensor),
              AdapterType(under().FindTensor(target.tensor)->dtype), rows, cols);
    places_.push_back(place);
}

Status AdaptedSource::ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                              int64_t col_count, std::span<std::byte> out,
                              uint64_t* bytes_read) const {
    const TensorInfo& tensor = tensors()[index];
    const Place& place = places_[index - under().tensors().size()];
    const Adapter& adapter = adapters_[place.adapter];
    std::vector<float> rows(static_cast<size_t>(row_count * tensor.cols));
    const LoraTarget& target = adapter.plan.targets[place.target];
    WEFT_TRY(adapter.file.Read(target, place.is_b, row_begin, row_count, rows));
    if (place.is_b) {
        const auto scale = static_cast<float>(target.scale);
        for (float& value : rows) value *= scale;
    }
    const auto bytes = static_cast<size_t>(RowBytes(tensor.dtype, col_count));
    for (int64_t i = 0; i < row_count; ++i) {
        QuantizeRow(tensor.dtype,
                    std::span(rows).subspan(static_cast<size_t>(i * tensor.cols + col_begin),
                                            static_cast<size_t>(col_count)),
                    out.subspan(static_cast<size_t>(i) * bytes, bytes));
    }
    if (bytes_read != nullptr) *bytes_read += out.size();
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

std::map<std::string, std::vector<int32_t>> AdaptersByTensor(const ModelSource& source) {
    std::map<std::string, std::vector<int32_t>> adapters;
    for (const TensorInfo& tensor : source.tensors()) {
        if (!tensor.name.starts_with(kLoraPrefix)) continue;
        size_t number = 0;
        const char* const end = tensor.name.data() + tensor.name.size();
        const auto [rest, error] =
            std::from_chars(tensor.name.data() + kLoraPrefix.size(), end, number);
        const std::string_view behind(rest, end);
        if (error != std::errc() || !behind.starts_with(kOfA)) continue;
        const std::string_view beside = behind.substr(kOfA.size());
        if (!IsPair(source, tensor, number, beside)) continue;
        adapters[std::string(beside)].push_back(static_cast<int32_t>(number));
    }
    return adapters;
}

Result<std::string> FingerprintOfAdapters(const ModelSource& source) {
    FingerprintMaker maker;
    bool any = false;
    for (const TensorInfo& tensor : source.tensors()) {
        if (!tensor.name.starts_with(kLoraPrefix)) continue;
        any = true;
        maker.Add(std::as_bytes(std::span(tensor.name)));
        maker.Add(static_cast<uint64_t>(tensor.rows));
        maker.Add(static_cast<uint64_t>(tensor.cols));
        std::vector<std::byte> row(static_cast<size_t>(RowBytes(tensor.dtype, tensor.cols)));
        for (const int64_t at : {int64_t{0}, tensor.rows / 2, tensor.rows - 1}) {
            WEFT_TRY(source.ReadRows(tensor, at, 1, 0, tensor.cols, row, nullptr));
            maker.Add(row);
        }
    }
    return any ? maker.Finish() : "";
}

}  // namespace weft::model_files
