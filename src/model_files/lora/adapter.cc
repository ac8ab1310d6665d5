#include "model_files/lora/adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <set>

#include "base/output_file.h"
#include "model_files/folder_kind.h"
#include "model_files/hf/json.h"
#include "model_files/lora/adapter_config.h"
#include "tensor/quant.h"

namespace weft::model_files {
namespace {

using hf::Json;
using hf::SafeTensor;
using hf::SafeType;

constexpr const char* kTensorsName = "/adapter_model.safetensors";

// The row in the Hugging Face model for row `row` of the GGUF model.
int64_t SavedRow(int64_t row, int64_t pairs_of) {
    if (pairs_of == 0) return row;
    const int64_t at = row % pairs_of;
    return row - at + at / 2 + at % 2 * (pairs_of / 2);
}

DType AdapterDType(SafeType type) {
    if (type == SafeType::kF16) return DType::kF16;
    return type == SafeType::kBF16 ? DType::kBF16 : DType::kF32;
}

// Where the layers are in a multimodal model's class of transformers, and in that of older
// versions.
constexpr std::string_view kText = "model.language_model.", kOlderText = "language_model.model.";
constexpr std::string_view kPlain = "model.";

constexpr std::string_view kBase = "base_model.model.";

// A tensor's name with another path to the layers; unchanged if it has neither of the paths `from`.
std::string WithPath(const std::string& name, std::initializer_list<std::string_view> from,
                     std::string_view to) {
    if (!name.starts_with(kBase)) return name;
    const std::string_view module = std::string_view(name).substr(kBase.size());
    for (const std::string_view path : from) {
        if (!module.starts_with(path)) continue;
        return fmt::format("{}{}{}", kBase, to, module.substr(path.size()));
    }
    return name;
}

// Whether transformers loads the model with a class that has the text model inside of it.
Result<bool> IsMultimodal(const ModelSource& source) {
    std::error_code none;
    const std::string path = source.folder() + "/config.json";
    if (source.folder().empty() || !std::filesystem::exists(path, none)) return false;
    WEFT_ASSIGN(const hf::Config config, hf::Config::Read(path));
    WEFT_ASSIGN(const std::vector<std::string> classes, config.Strings({"architectures"}));
    return config.Has("text_config") && !classes.empty() &&
           classes.front().ends_with("ForConditionalGeneration");
}

// target_modules: names, or for a multimodal model a pattern, because its other parts have modules
// of the same names.
Json TargetsOf(const LoraPlan& plan, bool multimodal) {
    if (!multimodal) return plan.Modules();
    return fmt::format("model\\.language_model\\..*\\.({})", fmt::join(plan.Modules(), "|"));
}

std::string ConfigText(const LoraPlan& plan, const std::string& model, bool multimodal) {
    const LoraOptions& words = plan.words;
    const Json config = {{"peft_type", "LORA"},
                         {"task_type", "CAUSAL_LM"},
                         {"base_model_name_or_path", model},
                         {"r", words.rank},
                         {"lora_alpha", words.alpha},
                         {"lora_dropout", 0.0},
                         {"use_rslora", words.rslora},
                         {"bias", "none"},
                         {"fan_in_fan_out", false},
                         {"inference_mode", true},
                         {"target_modules", TargetsOf(plan, multimodal)}};
    return config.dump(2) + "\n";
}

Status PutAdapterText(const std::string& path, std::string_view text) {
    WEFT_ASSIGN(OutputFile file, OutputFile::Create(path, text.size(), true));
    WEFT_TRY(file.WriteAt(0, std::as_bytes(std::span(text))));
    return file.Finish();
}

// A tensor to write, in the order of the data.
struct Part {
    const LoraTarget* target;
    bool is_b;
    std::string Name() const { return is_b ? target->NameB() : target->NameA(); }
    std::string SavedName(bool multimodal) const {
        return multimodal ? WithPath(Name(), {kPlain}, kText) : Name();
    }
};

std::vector<Part> PartsOf(const LoraPlan& plan) {
    std::vector<Part> parts;
    for (const LoraTarget& target : plan.targets) {
        parts.push_back({&target, false});
        parts.push_back({&target, true});
    }
    return parts;
}

// The safetensors header: length, JSON, blanks up to a multiple of eight.
std::string HeaderOf(const ModelSource& trained, const std::vector<Part>& parts, bool multimodal,
                     uint64_t& data_bytes) {
    Json header = {{"__metadata__", {{"format", "pt"}}}};
    for (const Part& part : parts) {
        const TensorInfo* tensor = trained.FindTensor(part.Name());
        WEFT_CHECK(tensor != nullptr && tensor->dtype == DType::kF32);
        header[part.SavedName(multimodal)] = {
            {"dtype", "F32"},
            {"shape", {tensor->rows, tensor->cols}},
            {"data_offsets", {data_bytes, data_bytes + tensor->bytes}}};
        data_bytes += tensor->bytes;
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    std::string out(sizeof length, '\0');
    std::memcpy(out.data(), &length, sizeof length);
    return out + text;
}

struct Opened {
    WeightFile file;
    std::vector<SafeTensor> tensors;
};

Result<Opened> OpenTensors(const std::string& path) {
    WEFT_ASSIGN(WeightFile file, WeightFile::Open(path));
    uint64_t length = 0;
    if (file.size_bytes() < sizeof length) {
        return MakeError(ErrorCode::kCorrupt, "{}: not a safetensors file", path);
    }
    WEFT_TRY(file.ReadAt(0, std::as_writable_bytes(std::span(&length, 1))));
    length = std::min({length, hf::kMostHeaderBytes, file.size_bytes() - sizeof length});
    std::vector<std::byte> header(sizeof length + length);
    WEFT_TRY(file.ReadAt(0, header));
    WEFT_ASSIGN(std::vector<SafeTensor> tensors,
                hf::ParseSafetensors(header, file.size_bytes(), path));
    for (SafeTensor& tensor : tensors) {
        tensor.name = WithPath(tensor.name, {kText, kOlderText}, kPlain);
    }
    return Opened{std::move(file), std::move(tensors)};
}

// The targets, from the names of tensors that have an A in some layer:
// "self_attn.q_proj,mlp.up_proj".
Result<std::string> TargetsOfTensors(const std::string& folder) {
    constexpr std::string_view kLayers = "model.model.layers.", kEnd = ".lora_A.weight";
    WEFT_ASSIGN(const Opened opened, OpenTensors(folder + kTensorsName));
    const std::string begin = std::string(kAdapterPrefix) + std::string(kLayers);
    std::set<std::string> modules;
    for (const SafeTensor& tensor : opened.tensors) {
        if (!tensor.name.ends_with(kEnd)) continue;
        std::string module = tensor.name.substr(0, tensor.name.size() - kEnd.size());
        // (A tensor outside the layers is refused later, with its name.)
        const size_t dot = module.starts_with(begin) ? module.find('.', begin.size()) : module.npos;
        if (dot != module.npos) module.erase(0, dot + 1);
        modules.insert(std::move(module));
    }
    if (!modules.empty()) return fmt::format("{}", fmt::join(modules, ","));
    return MakeError(ErrorCode::kCorrupt, "{}{}: has no tensor named ...{}", folder, kTensorsName,
                     kEnd);
}

// 8, or 8.0 as some programs write it.
Result<int64_t> RankOf(const hf::Config& config) {
    constexpr int64_t kMost = 1 << 16;
    const auto r = config.json().find("r");
    if (r != config.json().end() && r->is_number_float()) {
        const auto value = r->get<double>();
        if (value >= 1 && value <= kMost && value == std::floor(value)) {
            return static_cast<int64_t>(value);
        }
    }
    return config.NeedInt({"r"}, 1, kMost);
}

}  // namespace

Result<LoraOptions> ReadAdapterConfig(const std::string& folder) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(folder, ignored)) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a file; expected a folder with adapter_config.json and "
                         "adapter_model.safetensors, as written by peft. GGUF adapters are not "
                         "supported: use the adapter that the file was converted from",
                         folder);
    }
    if (std::filesystem::is_directory(folder, ignored) &&
        !std::filesystem::exists(folder + kAdapterConfigName, ignored)) {
        const std::string kind =
            HoldsModel(folder) ? "a model, not an adapter" : FolderKind(folder);
        return MakeError(ErrorCode::kNotFound,
                         "{}: no adapter_config.json. {}{}Give a folder written by peft or 'weft "
                         "train --lora'",
                         folder, kind.empty() ? "" : "It is " + kind, kind.empty() ? "" : ". ");
    }
    WEFT_ASSIGN(const hf::Config config, hf::Config::Read(folder + kAdapterConfigName));
    WEFT_TRY(CheckAdapterConfig(config));
    LoraOptions words;
    words.from = folder;
    WEFT_ASSIGN(words.rank, RankOf(config));
    WEFT_ASSIGN(words.alpha, config.F64Or({"lora_alpha"}, words.alpha));
    WEFT_ASSIGN(words.rslora, config.BoolOr({"use_rslora"}, false));
    WEFT_ASSIGN(words.targets, AdapterTargets(config));
    if (words.targets.empty()) {
        auto targets = TargetsOfTensors(folder);
        if (!targets.ok() && targets.error().code == ErrorCode::kNotFound) {
            return UnknownTargets(config);
        }
        WEFT_ASSIGN(words.targets, std::move(targets));
    }
    return words;
}

Result<AdapterFile> AdapterFile::Open(const LoraPlan& plan) {
    const std::string path = plan.words.from + kTensorsName;
    WEFT_ASSIGN(Opened opened, OpenTensors(path));
    AdapterFile adapter(std::move(opened.file), std::move(opened.tensors));
    for (const LoraTarget& target : plan.targets) {
        WEFT_TRY(adapter.Check(target.NameA(), plan.words.rank, target.cols));
        WEFT_TRY(adapter.Check(target.NameB(), target.rows, plan.words.rank));
    }
    if (adapter.tensors_.size() == 2 * plan.targets.size()) return adapter;
    return MakeError(ErrorCode::kUnsupported,
                     "{}: {} tensors; A and B of the {} matrices in adapter_config.json are {}",
                     path, adapter.tensors_.size(), plan.targets.size(), 2 * plan.targets.size());
}

const SafeTensor* AdapterFile::Find(const std::string& name) const {
    const auto found = std::ranges::find(tensors_, name, &SafeTensor::name);
    return found == tensors_.end() ? nullptr : &*found;
}

Status AdapterFile::Check(const std::string& name, int64_t rows, int64_t cols) const {
    const SafeTensor* tensor = Find(name);
    if (tensor == nullptr) {
        return MakeError(ErrorCode::kNotFound, "{}: tensor '{}' is missing", file_.path(), name);
    }
    const bool floats = tensor->type == SafeType::kF32 || tensor->type == SafeType::kF16 ||
                        tensor->type == SafeType::kBF16;
    if (floats && tensor->shape == std::vector<int64_t>{rows, cols}) return {};
    return MakeError(ErrorCode::kCorrupt,
                     "{}: tensor '{}' has shape {} and dtype {}; expected F32, F16 or BF16 with "
                     "shape [{}, {}]",
                     file_.path(), name, fmt::format("[{}]", fmt::join(tensor->shape, ", ")),
                     hf::SafeTypeName(tensor->type), rows, cols);
}

Status AdapterFile::Read(const LoraTarget& target, bool is_b, int64_t row, int64_t rows,
                         std::span<float> out) const {
    const SafeTensor* tensor = Find(is_b ? target.NameB() : target.NameA());
    WEFT_CHECK(tensor != nullptr);
    const DType dtype = AdapterDType(tensor->type);
    const int64_t cols = tensor->shape[1], row_bytes = RowBytes(dtype, cols);
    // Rows are reordered within a head only, so whole heads are read.
    const int64_t unit = is_b && target.pairs_of > 0 ? target.pairs_of : 1;
    const int64_t first = row / unit * unit, end = (row + rows + unit - 1) / unit * unit;
    std::vector<std::byte> raw(static_cast<size_t>((end - first) * row_bytes));
    WEFT_TRY(file_.ReadAt(tensor->offset + static_cast<uint64_t>(first * row_bytes), raw));
    for (int64_t i = 0; i < rows; ++i) {
        const int64_t from = (is_b ? SavedRow(row + i, target.pairs_of) : row + i) - first;
        DequantizeRow(dtype,
                      std::span(raw).subspan(static_cast<size_t>(from * row_bytes),
                                             static_cast<size_t>(row_bytes)),
                      out.subspan(static_cast<size_t>(i * cols), static_cast<size_t>(cols)));
    }
    const auto read = out.first(static_cast<size_t>(rows * cols));
    const auto bad = std::ranges::find_if_not(read, [](float v) { return std::isfinite(v); });
    if (bad == read.end()) return {};
    return MakeError(
        ErrorCode::kCorrupt,
        "{}: tensor {}: a value is {}; expected finite numbers. Is the adapter of a run "
        "that diverged? Use an earlier checkpoint",
        path(), tensor->name, *bad);
}

Status WriteAdapter(const ModelSource& trained, const LoraPlan& plan, const std::string& model,
                    const std::string& folder) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) {
        return MakeError(ErrorCode::kIo, "{}: cannot create the folder: {}", folder,
                         failed.message());
    }
    const std::vector<Part> parts = PartsOf(plan);
    uint64_t data_bytes = 0;
    WEFT_ASSIGN(const bool multimodal, IsMultimodal(trained));
    const std::string header = HeaderOf(trained, parts, multimodal, data_bytes);
    WEFT_ASSIGN(OutputFile file,
                OutputFile::Create(folder + kTensorsName, header.size() + data_bytes, true));
    WEFT_TRY(file.WriteAt(0, std::as_bytes(std::span(header))));
    uint64_t at = header.size();
    std::vector<std::byte> rows, saved;
    for (const Part& part : parts) {
        const TensorInfo& tensor = *trained.FindTensor(part.Name());
        rows.resize(tensor.bytes);
        saved.resize(tensor.bytes);
        WEFT_TRY(trained.ReadRows(tensor, 0, tensor.rows, 0, tensor.cols, rows, nullptr));
        const auto row_bytes = static_cast<size_t>(tensor.cols) * sizeof(float);
        for (int64_t row = 0; row < tensor.rows; ++row) {
            const int64_t to = part.is_b ? SavedRow(row, part.target->pairs_of) : row;
            std::memcpy(saved.data() + static_cast<size_t>(to) * row_bytes,
                        rows.data() + static_cast<size_t>(row) * row_bytes, row_bytes);
        }
        WEFT_TRY(file.WriteAt(at, saved));
        at += tensor.bytes;
    }
    WEFT_TRY(file.Finish());
    return PutAdapterText(folder + kAdapterConfigName, ConfigText(plan, model, multimodal));
}

}  // namespace weft::model_files
