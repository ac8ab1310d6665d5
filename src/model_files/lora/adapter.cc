#include "model_files/lora/adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/dangling_link.h"
#include "base/file_kind.h"
#include "base/output_file.h"
#include "model_files/folder_kind.h"
#include "model_files/hf/export.h"
#include "model_files/hf/json.h"
#include "model_files/hf/torch_file.h"
#include "model_files/lora/adapter_config.h"
#include "tensor/quant.h"

namespace weft::model_files {
namespace {

using hf::Json;
using hf::SafeTensor;
using hf::SafeType;

constexpr const char *kTensorsName = "/adapter_model.safetensors",
                     *kOlderName = "/adapter_model.bin";

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

// The path of the text model in transformers' class of a multimodal model, and in most others.
constexpr std::string_view kText = "model.language_model.", kPlain = "model.";
constexpr std::string_view kBase = "base_model.model.", kLayers = "model.layers";

// The path of the layers in the class of transformers with which an adapter of this task is loaded.
Result<hf::LayerPath> TextPath(const ModelSource& source, bool multimodal, AdapterTask task) {
    WEFT_ASSIGN(hf::LayerPath path, hf::LayerPathOf(source));
    if (multimodal) path.before = kText;
    if (task == AdapterTask::kFeatures) path.before.erase(0, path.before.find('.') + 1);
    return path;
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

// A module's name in the class of transformers, from "model.layers.3.mlp". path: TextPath().
std::string SavedModule(const std::string& module, const hf::LayerPath& path) {
    return path.before + path.layers + module.substr(kLayers.size());
}

// target_modules: names, or for a multimodal model a pattern, because its other parts have modules
// of the same names.
Json TargetsOf(const LoraPlan& plan, bool multimodal, const hf::LayerPath& path) {
    std::vector<std::string> names = plan.Modules(), ends;
    for (std::string& name : names) {
        const bool whole = name.starts_with(kPlain);
        ends.push_back(whole ? name.substr(kPlain.size()) : R"(.*\.)" + name);
        if (whole) name = SavedModule(name, path);
    }
    if (!multimodal) return names;
    const std::string before =
        path.before == kText ? R"(model\.language_model\.)" : R"(language_model\.)";
    const bool plain = std::ranges::none_of(
        ends, [](const std::string& end) { return end.starts_with("layers."); });
    if (plain) return fmt::format(R"({}.*\.({}))", before, fmt::join(names, "|"));
    return fmt::format("{}({})", before, fmt::join(ends, "|"));
}

// Whether PEFT adapts the weight as a parameter. A router is no linear layer in transformers. PEFT
// applies the name of an expert's module in target_modules to all experts, which transformers 5
// holds in one tensor, and then skips dense MLPs and shared experts with modules of that name.
bool IsParameter(const LoraPlan& plan, const LoraTarget& target) {
    const std::string last = target.module.substr(target.module.rfind('.') + 1);
    return target.tensor.ends_with(".ffn_gate_inp.weight") || plan.of_experts.contains(last);
}

std::string ConfigText(const LoraPlan& plan, const std::string& model, bool multimodal,
                       AdapterTask task, const hf::LayerPath& path) {
    constexpr const char* kTasks[] = {"CAUSAL_LM", "SEQ_CLS", "FEATURE_EXTRACTION"};
    const LoraOptions& words = plan.words;
    Json ranks = Json::object(), alphas = Json::object(), parameters = Json::array();
    LoraPlan modules = plan;
    std::erase_if(modules.targets,
                  [&](const LoraTarget& target) { return IsParameter(plan, target); });
    for (const LoraTarget& target : plan.targets) {
        std::string module = SavedModule(target.module, path);
        if (IsParameter(plan, target)) {
            module += ".weight";
            parameters.push_back(module);
        }
        if (target.rank != words.rank) ranks[module] = target.rank;
        if (target.alpha != words.alpha) alphas[module] = target.alpha;
    }
    Json config = {{"peft_type", "LORA"},
                   {"task_type", kTasks[static_cast<size_t>(task)]},
                   {"base_model_name_or_path", model},
                   {"r", words.rank},
                   {"rank_pattern", ranks},
                   {"lora_alpha", words.alpha},
                   {"alpha_pattern", alphas},
                   {"lora_dropout", 0.0},
                   {"use_rslora", words.rslora},
                   {"bias", "none"},
                   {"fan_in_fan_out", false},
                   {"inference_mode", true},
                   {"target_modules", Json::array()}};
    if (!modules.targets.empty()) config["target_modules"] = TargetsOf(modules, multimodal, path);
    if (!parameters.empty()) config["target_parameters"] = parameters;
    if (task == AdapterTask::kScores) config["modules_to_save"] = {"score"};
    return config.dump(2) + "\n";
}

using Part = AdapterPlan::Tensor;

// The parts, in the order of the data.
std::vector<Part> PartsOf(const ModelSource& source, const LoraPlan& plan,
                          const hf::LayerPath& path) {
    std::vector<Part> parts;
    const auto add = [&](const std::string& name, int64_t pairs_of) {
        parts.push_back({name,
                         fmt::format("{}{}", kBase, SavedModule(name.substr(kBase.size()), path)),
                         pairs_of});
    };
    for (const LoraTarget& target : plan.targets) {
        add(target.NameA(), 0);
        add(target.NameB(), target.pairs_of);
    }
    for (const char* part : {"weight", "bias"}) {
        const std::string name = fmt::format("cls.output.{}", part);
        if (source.FindTensor(name) == nullptr) continue;
        parts.push_back({name, fmt::format("{}score.{}", kBase, part)});
    }
    return parts;
}

// The safetensors header: length, JSON, blanks up to a multiple of eight.
Result<std::string> HeaderOf(const ModelSource& trained, const std::vector<Part>& parts,
                             uint64_t& data_bytes) {
    Json header = {{"__metadata__", {{"format", "pt"}}}};
    for (const Part& part : parts) {
        WEFT_ASSIGN(const TensorInfo* tensor, trained.NeedTensor(part.name));
        WEFT_CHECK(tensor->dtype == DType::kF32);
        Json shape = {tensor->rows, tensor->cols};
        if (part.saved.ends_with(".bias")) shape = {tensor->rows * tensor->cols};
        header[part.saved] = {{"dtype", "F32"},
                              {"shape", shape},
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

constexpr std::string_view kEndA = ".lora_A.weight", kEndB = ".lora_B.weight";
constexpr std::string_view kEmbeddingA = ".lora_embedding_A", kEmbeddingB = ".lora_embedding_B";

void EraseAll(std::string& name, std::string_view part) {
    for (size_t at = name.find(part); at != name.npos; at = name.find(part)) {
        name.erase(at, part.size());
    }
}

// "lora_A.weight" from "lora_A.default.weight", "lora_embedding_A" from "lora_embedding_A.default".
void EraseAdapterName(std::string& name) {
    for (const std::string_view which : {".lora_A.", ".lora_B."}) {
        const size_t at = name.find(which), end = name.rfind(".weight");
        if (at == name.npos || end == name.npos || end + 7 != name.size()) continue;
        const size_t adapter = at + which.size();
        if (adapter < end && name.find('.', adapter) == end) name.erase(adapter, end + 1 - adapter);
    }
    for (const std::string_view which :
         {kEmbeddingA, kEmbeddingB, std::string_view(".lora_magnitude_vector")}) {
        const size_t at = name.find(which);
        if (at != name.npos) name.resize(at + which.size());
    }
}

// "model.layers.0.self_attn.q_proj.lora_A.weight" from any name of that tensor in the files of
// PEFT's versions and of programs that save what PEFT has in memory.
std::string PlainName(std::string name) {
    EraseAll(name, "_orig_mod.");  // torch.compile
    if (name.find(".lora_") == name.npos) {
        for (const char* part : {".base_layer", ".modules_to_save.default", ".modules_to_save"}) {
            EraseAll(name, part);
        }
    }
    if (name.starts_with(kBase)) name.erase(0, kBase.size());
    name = WithoutPath(std::move(name));
    EraseAdapterName(name);
    return ModuleInMemory(fmt::format("{}{}{}", kBase, kPlain, name));
}

struct Opened {
    WeightFile file;
    std::vector<SafeTensor> tensors;  // with the names of LoraTarget, sorted by them
    std::vector<std::string> saved;   // the file's names
};

const SafeTensor* FindByName(const std::vector<SafeTensor>& sorted, const std::string& name) {
    const auto found = std::ranges::lower_bound(sorted, name, {}, &SafeTensor::name);
    return found == sorted.end() || found->name != name ? nullptr : &*found;
}

Result<std::vector<SafeTensor>> ReadSafetensors(const WeightFile& file) {
    uint64_t length = 0;
    if (file.size_bytes() < sizeof length) {
        return MakeError(ErrorCode::kCorrupt, "{}: not a safetensors file", file.path());
    }
    WEFT_TRY(file.ReadAt(0, std::as_writable_bytes(std::span(&length, 1))));
    length = std::min({length, hf::kMostHeaderBytes, file.size_bytes() - sizeof length});
    std::vector<std::byte> header(sizeof length + length);
    WEFT_TRY(file.ReadAt(0, header));
    return hf::ParseSafetensors(header, file.size_bytes(), file.path());
}

bool HoldSame(const WeightFile& file, const SafeTensor& a, const SafeTensor& b) {
    if (a.type != b.type || a.shape != b.shape || a.bytes != b.bytes) return false;
    std::vector<std::byte> of_a(a.bytes), of_b(b.bytes);
    return file.ReadAt(a.offset, of_a).ok() && file.ReadAt(b.offset, of_b).ok() && of_a == of_b;
}

// With "bias": "all", PEFT saves the bias of a module of modules_to_save twice more: of the module,
// and of the one that it replaces.
constexpr std::string_view kReplacing = ".modules_to_save", kReplaced = ".original_module";

Result<Opened> OpenTensors(const std::string& folder) {
    const std::string path = AdapterTensorsPath(folder);
    const bool older = path.ends_with(kOlderName);
    WEFT_ASSIGN(WeightFile file, WeightFile::Open(path));
    WEFT_ASSIGN(std::vector<SafeTensor> tensors,
                older ? hf::ReadTorchFile(file) : ReadSafetensors(file));
    std::map<std::string, std::pair<std::string, SafeTensor>> sorted;
    for (SafeTensor& tensor : tensors) {
        const std::string saved = tensor.name;
        tensor.name = PlainName(std::move(tensor.name));
        const auto [at, added] = sorted.try_emplace(tensor.name, saved, tensor);
        const auto replaces = [](const std::string& name) {
            return name.find(kReplacing) != name.npos;
        };
        const std::string& other = at->second.first;
        if (added ||
            (replaces(saved) != replaces(other) && HoldSame(file, tensor, at->second.second))) {
            continue;
        }
        return MakeError(ErrorCode::kCorrupt,
                         "{}: the tensors '{}' and '{}' have the same place in the model. Save "
                         "the adapter without one of the two",
                         path, hf::Shown(other), hf::Shown(saved));
    }
    std::erase_if(sorted, [&](const auto& entry) {
        std::string name = entry.first;
        EraseAll(name, kReplaced);
        return name != entry.first && sorted.contains(name);
    });
    Opened opened{std::move(file), {}, {}};
    for (auto& [name, tensor] : sorted) {
        opened.saved.push_back(std::move(tensor.first));
        opened.tensors.push_back(std::move(tensor.second));
    }
    return opened;
}

}  // namespace

std::string AdapterTensorsPath(const std::string& folder) {
    const bool older = !IsListed(folder + kTensorsName) && IsListed(folder + kOlderName);
    return folder + (older ? kOlderName : kTensorsName);
}

Result<AdapterConfig> ReadAdapterConfig(const std::string& folder, LoraUse use) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(folder, ignored)) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a file; expected a folder with adapter_config.json and "
                         "adapter_model.safetensors, as written by peft. GGUF adapters are not "
                         "supported: use the adapter that the file was converted from",
                         folder);
    }
    if (std::filesystem::is_directory(folder, ignored) && !IsListed(folder + kAdapterConfigName)) {
        const std::string kind =
            HoldsModel(folder) ? "a model, not an adapter" : FolderKind(folder);
        return MakeError(ErrorCode::kNotFound,
                         "{}: no adapter_config.json. {}{}Give a folder written by peft or 'weft "
                         "train --lora'",
                         folder, kind.empty() ? "" : "It is " + kind, kind.empty() ? "" : ". ");
    }
    const std::string path = folder + kAdapterConfigName;
    WEFT_ASSIGN(const std::string text, ReadModelText(path, hf::kMostConfigBytes));
    WEFT_ASSIGN(const hf::Config config, hf::Config::Parse(text, path));
    WEFT_ASSIGN(AdapterConfig read, ParseAdapterConfig(config, text, use));
    read.words.from = folder;
    return read;
}

Result<AdapterNames> ReadAdapterNames(const std::string& folder) {
    WEFT_ASSIGN(const Opened opened, OpenTensors(folder));
    AdapterNames names;
    for (size_t at = 0; at < opened.tensors.size(); ++at) {
        const SafeTensor& tensor = opened.tensors[at];
        AdapterModule module;
        module.saved = opened.saved[at];
        if (module.saved.starts_with(kBase)) module.saved.erase(0, kBase.size());
        module.module = tensor.name.substr(kBase.size());
        if (module.module.find(".lora_") == std::string::npos) {
            if (tensor.shape.size() == 2) module.b_rows = tensor.shape[0];
            names.wholes.push_back(std::move(module));
            continue;
        }
        module.embedding = tensor.name.ends_with(kEmbeddingA);
        const std::string_view end = module.embedding ? kEmbeddingA : kEndA;
        if (!tensor.name.ends_with(end)) continue;
        module.module.resize(module.module.size() - end.size());
        const size_t end_at = module.saved.find(module.embedding ? kEmbeddingA : ".lora_A.");
        if (end_at == std::string::npos) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: tensor '{}': expected MODULE{}. Save the adapter again with PEFT",
                             opened.file.path(), hf::Shown(module.saved), end);
        }
        module.saved.resize(end_at);
        const SafeTensor* b = FindByName(
            opened.tensors,
            fmt::format("{}{}{}", kBase, module.module, module.embedding ? kEmbeddingB : kEndB));
        if (tensor.shape.size() == 2) module.a_cols = tensor.shape[1];
        if (b != nullptr && b->shape.size() == 2) module.b_rows = b->shape[0];
        names.modules.push_back(std::move(module));
    }
    if (!names.modules.empty()) return names;
    return MakeError(ErrorCode::kCorrupt, "{}: has no tensor named ...{}", opened.file.path(),
                     kEndA);
}

Result<AdapterFile> AdapterFile::Open(const LoraPlan& plan) {
    WEFT_ASSIGN(Opened opened, OpenTensors(plan.words.from));
    AdapterFile adapter(std::move(opened.file), std::move(opened.tensors));
    std::set<std::string> known;
    for (const LoraTarget& target : plan.targets) {
        WEFT_TRY(adapter.CheckTarget(target));
        known.insert({target.NameA(), target.NameB()});
        if (!target.dora) continue;
        known.insert(target.NameOfLengths());
        const auto lengths =
            adapter.FindFloats(target.NameOfLengths(), target.runs.All(target.rows));
        if (!lengths.ok()) return lengths.error();
    }
    for (const LoraWhole& whole : plan.wholes) known.insert(whole.FileName());
    for (size_t at = 0; at < opened.saved.size(); ++at) {
        const std::string& name = adapter.tensors_[at].name;
        const bool is_left_out = std::ranges::any_of(plan.left_out, [&](const std::string& part) {
            return name.starts_with(kBase) && name.compare(kBase.size(), part.size(), part) == 0;
        });
        if (is_left_out || known.contains(name)) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: tensor '{}' is not A or B of a matrix that the adapter changes",
                         adapter.path(), hf::Shown(opened.saved[at]));
    }
    return adapter;
}

Status AdapterFile::CheckTarget(const LoraTarget& target) const {
    const std::string a = target.NameA(), b = target.NameB();
    switch (target.form) {
        case LoraTarget::Form::kMatrix:
            WEFT_TRY(Check(a, target.rank, target.cols));
            return Check(b, target.runs.All(target.rows), target.rank);
        case LoraTarget::Form::kEmbedding:
            WEFT_TRY(Check(a, target.rank, target.rows));
            return Check(b, target.cols, target.rank);
        case LoraTarget::Form::kKeys:
            WEFT_TRY(Check(a, target.rank, target.rows / target.experts));
            return Check(b, target.runs.All(target.experts * target.cols), target.rank);
        case LoraTarget::Form::kTurned:
            WEFT_TRY(Check(a, target.rank * target.experts, target.rows / target.experts));
            return Check(b, target.cols, target.rank * target.experts);
        case LoraTarget::Form::kExperts: break;
    }
    const int64_t all = target.rank * target.experts;
    WEFT_TRY(Check(a, all, target.cols));
    const SafeTensor* tensor = Find(b);
    const bool flat = tensor != nullptr && tensor->shape.size() == 2;
    return Check(b, flat ? tensor->shape[0] : 0, all);
}

const SafeTensor* AdapterFile::Find(const std::string& name) const {
    return FindByName(tensors_, name);
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

Status AdapterFile::ReadInOrder(const SafeTensor& tensor, int64_t cols, int64_t pairs_of,
                                int64_t row, int64_t rows, std::span<float> out) const {
    const DType dtype = AdapterDType(tensor.type);
    const int64_t row_bytes = RowBytes(dtype, cols);
    // Rows are reordered within a head only, so whole heads are read.
    const int64_t unit = std::max<int64_t>(pairs_of, 1);
    const int64_t first = row / unit * unit, end = (row + rows + unit - 1) / unit * unit;
    std::vector<std::byte> raw(static_cast<size_t>((end - first) * row_bytes));
    WEFT_TRY(file_.ReadAt(tensor.offset + static_cast<uint64_t>(first * row_bytes), raw));
    for (int64_t i = 0; i < rows; ++i) {
        const int64_t from = SavedRow(row + i, pairs_of) - first;
        DequantizeRow(dtype,
                      std::span(raw).subspan(static_cast<size_t>(from * row_bytes),
                                             static_cast<size_t>(row_bytes)),
                      out.subspan(static_cast<size_t>(i * cols), static_cast<size_t>(cols)));
    }
    return CheckFinite(tensor, out.first(static_cast<size_t>(rows * cols)));
}

Status AdapterFile::Read(const LoraTarget& target, bool is_b, int64_t row, int64_t rows,
                         std::span<float> out) const {
    const SafeTensor* tensor = Find(is_b ? target.NameB() : target.NameA());
    WEFT_CHECK(tensor != nullptr);
    if (!is_b) {
        WEFT_TRY(ReadInOrder(*tensor, target.cols, 0, row, rows, out));
        if (target.columns.stride == 0) return {};
        const std::vector<float> saved(out.begin(), out.end());
        for (int64_t i = 0; i < std::ssize(out); ++i) {
            const int64_t col = i % target.cols;
            out[static_cast<size_t>(i)] =
                saved[static_cast<size_t>(i - col + target.columns.Of(col))];
        }
        return {};
    }
    return ReadRuns(*tensor, tensor->shape[1], target, row, rows, out);
}

Status AdapterFile::ReadRuns(const SafeTensor& tensor, int64_t cols, const LoraTarget& target,
                             int64_t row, int64_t rows, std::span<float> out) const {
    const hf::RowRuns& runs = target.runs;
    for (int64_t i = 0, count = rows; i < rows; i += count) {
        const int64_t at = row + i;
        if (runs.stride > 0) count = std::min(rows - i, runs.count - at % runs.count);
        WEFT_TRY(ReadInOrder(tensor, cols, target.pairs_of, runs.Of(at), count,
                             out.subspan(static_cast<size_t>(i * cols))));
    }
    return {};
}

Status AdapterFile::CheckFinite(const SafeTensor& tensor, std::span<const float> values) const {
    const auto bad = std::ranges::find_if_not(values, [](float v) { return std::isfinite(v); });
    if (bad == values.end()) return {};
    return MakeError(
        ErrorCode::kCorrupt,
        "{}: tensor {}: a value is {}; expected finite numbers. Is the adapter of a run "
        "that diverged? Use an earlier checkpoint",
        path(), tensor.name, *bad);
}

Result<const SafeTensor*> AdapterFile::FindFloats(const std::string& name, int64_t count) const {
    const SafeTensor* tensor = Find(name);
    if (tensor == nullptr) {
        return MakeError(ErrorCode::kNotFound, "{}: tensor '{}' is missing", path(), name);
    }
    const bool floats = tensor->type == SafeType::kF32 || tensor->type == SafeType::kF16 ||
                        tensor->type == SafeType::kBF16;
    const auto bytes = static_cast<uint64_t>(count) * hf::SafeTypeBytes(tensor->type);
    if (floats && tensor->bytes == bytes) return tensor;
    return MakeError(ErrorCode::kCorrupt,
                     "{}: tensor '{}' has shape [{}] and dtype {}; expected F32, F16 or BF16 with "
                     "{} elements",
                     path(), name, fmt::join(tensor->shape, ", "), hf::SafeTypeName(tensor->type),
                     count);
}

Result<std::vector<float>> AdapterFile::Values(const std::string& name, int64_t count) const {
    WEFT_ASSIGN(const SafeTensor* const tensor, FindFloats(name, count));
    std::vector<float> values(static_cast<size_t>(count));
    WEFT_TRY(ReadInOrder(*tensor, count, 0, 0, 1, values));
    return values;
}

Result<std::vector<float>> AdapterFile::ReadWhole(const LoraTarget& target, bool is_b) const {
    const int64_t rank = target.rank, experts = target.experts;
    std::vector<float> out(
        static_cast<size_t>((is_b ? target.rows : rank * experts) * (is_b ? rank : target.cols)));
    switch (target.form) {
        case LoraTarget::Form::kMatrix:
            WEFT_TRY(Read(target, is_b, 0, is_b ? target.rows : rank, out));
            return out;
        case LoraTarget::Form::kEmbedding: {
            // A is the transposed B of the transposed matrix, and B its transposed A.
            const int64_t rows = is_b ? rank : target.cols, cols = is_b ? target.rows : rank;
            WEFT_ASSIGN(const std::vector<float> values,
                        Values(is_b ? target.NameA() : target.NameB(), rows * cols));
            for (int64_t r = 0; r < rows; ++r) {
                for (int64_t c = 0; c < cols; ++c) {
                    out[static_cast<size_t>(c * rows + r)] =
                        values[static_cast<size_t>(r * cols + c)];
                }
            }
            return out;
        }
        case LoraTarget::Form::kKeys: {
            const int64_t latent = target.rows / experts, rows = experts * target.cols;
            WEFT_ASSIGN(const std::vector<float> a, Values(target.NameA(), rank * latent));
            std::vector<float> b(static_cast<size_t>(rows * rank));
            WEFT_TRY(ReadRuns(*Find(target.NameB()), rank, target, 0, rows, b));
            for (size_t i = 0; i < out.size(); ++i) {
                const auto at = static_cast<int64_t>(i), width = is_b ? rank : target.cols;
                const int64_t row = at / width, col = at % width;
                out[i] = is_b ? a[static_cast<size_t>(col * latent + row % latent)]
                              : b[static_cast<size_t>((row / rank * target.cols + col) * rank +
                                                      row % rank)];
            }
            return out;
        }
        case LoraTarget::Form::kTurned: {
            // A is each expert's transposed B, and B its transposed A.
            const int64_t in = target.rows / experts, cols = is_b ? rank : target.cols;
            WEFT_ASSIGN(const std::vector<float> values,
                        Values(is_b ? target.NameA() : target.NameB(),
                               rank * experts * (is_b ? in : target.cols)));
            for (size_t i = 0; i < out.size(); ++i) {
                const auto at = static_cast<int64_t>(i);
                const int64_t row = at / cols, col = at % cols;
                out[i] = values[static_cast<size_t>(is_b ? (row / in * rank + col) * in + row % in
                                                         : (col * rank + row % rank) * experts +
                                                               row / rank)];
            }
            return out;
        }
        case LoraTarget::Form::kExperts: break;
    }
    if (!is_b) return Values(target.NameA(), rank * experts * target.cols);
    // B [rows of an expert, rank, experts]
    const int64_t each = target.rows / experts, all = Find(target.NameB())->shape[0];
    WEFT_ASSIGN(const std::vector<float> values, Values(target.NameB(), all * rank * experts));
    for (int64_t row = 0; row < target.rows; ++row) {
        const int64_t expert = row / each, from = target.runs.Of(row % each);
        for (int64_t r = 0; r < rank; ++r) {
            out[static_cast<size_t>(row * rank + r)] =
                values[static_cast<size_t>((from * rank + r) * experts + expert)];
        }
    }
    return out;
}

Result<std::vector<float>> AdapterFile::ReadLengths(const LoraTarget& target) const {
    WEFT_ASSIGN(const SafeTensor* const saved,
                FindFloats(target.NameOfLengths(), target.runs.All(target.rows)));
    std::vector<float> lengths(static_cast<size_t>(target.rows));
    WEFT_TRY(ReadRuns(*saved, 1, target, 0, target.rows, lengths));
    for (float& length : lengths) length *= static_cast<float>(target.factor);
    return lengths;
}

Status AdapterFile::CheckWhole(const LoraWhole& whole, const TensorInfo& tensor) const {
    const int64_t rows = whole.rows.empty() ? tensor.rows : std::ssize(whole.rows);
    if (tensor.dim_count == 2) return Check(whole.FileName(), rows, tensor.cols);
    const auto found = FindFloats(whole.FileName(), tensor.rows * tensor.cols);
    return found.ok() ? Status() : found.error();
}

Status AdapterFile::ReadRows(const LoraWhole& whole, const TensorInfo& tensor, int64_t row,
                             int64_t rows, std::span<float> out) const {
    const SafeTensor* saved = Find(whole.FileName());
    WEFT_CHECK(saved != nullptr);
    if (tensor.rows == 1) {  // the elements of a vector are reordered like rows
        WEFT_TRY(ReadInOrder(*saved, 1, whole.pairs_of, 0, tensor.cols, out));
    } else {
        WEFT_TRY(ReadInOrder(*saved, tensor.cols, whole.pairs_of, row, rows, out));
    }
    const auto factor = static_cast<float>(whole.factor);
    for (float& value : out) value = value * factor - whole.add;
    return {};
}

Result<AdapterPlan> PlanAdapter(const ModelSource& source, const LoraPlan& plan,
                                const std::string& model, AdapterTask task) {
    WEFT_ASSIGN(const bool multimodal, IsMultimodal(source));
    WEFT_ASSIGN(const hf::LayerPath path, TextPath(source, multimodal, task));
    return AdapterPlan{PartsOf(source, plan, path),
                       ConfigText(plan, model, multimodal, task, path)};
}

Status WriteAdapter(const ModelSource& trained, const AdapterPlan& plan,
                    const std::string& folder) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) {
        return MakeError(ErrorCode::kIo, "{}: cannot create the folder: {}", folder,
                         failed.message());
    }
    uint64_t data_bytes = 0;
    WEFT_ASSIGN(const std::string header, HeaderOf(trained, plan.tensors, data_bytes));
    WEFT_ASSIGN(OutputFile file,
                OutputFile::Create(folder + kTensorsName, header.size() + data_bytes, true));
    WEFT_TRY(file.WriteAt(0, std::as_bytes(std::span(header))));
    uint64_t at = header.size();
    std::vector<std::byte> rows, saved;
    for (const Part& part : plan.tensors) {
        const TensorInfo& tensor = *trained.FindTensor(part.name);
        rows.resize(tensor.bytes);
        saved.resize(tensor.bytes);
        WEFT_TRY(trained.ReadRows(tensor, 0, tensor.rows, 0, tensor.cols, rows, nullptr));
        const auto row_bytes = static_cast<size_t>(tensor.cols) * sizeof(float);
        for (int64_t row = 0; row < tensor.rows; ++row) {
            const int64_t to = SavedRow(row, part.pairs_of);
            std::memcpy(saved.data() + static_cast<size_t>(to) * row_bytes,
                        rows.data() + static_cast<size_t>(row) * row_bytes, row_bytes);
        }
        WEFT_TRY(file.WriteAt(at, saved));
        at += tensor.bytes;
    }
    WEFT_ASSIGN(OutputFile config,
                OutputFile::Create(folder + kAdapterConfigName, plan.config.size(), true));
    WEFT_TRY(config.WriteAt(0, std::as_bytes(std::span(plan.config))));
    OutputFile files[] = {std::move(file), std::move(config)};
    return FinishTogether(files, {});
}

}  // namespace weft::model_files
