#include "model_files/embedding_head.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/dangling_link.h"
#include "base/file_kind.h"
#include "model_files/hf/json.h"
#include "model_files/hf/safetensors.h"
#include "model_files/score_head.h"
#include "tensor/quant.h"

namespace weft::model_files {
namespace {

using hf::Config;
using hf::Json;
using hf::Shown;

constexpr int64_t kMostColumns = 1 << 20;
constexpr size_t kMostModules = 64;

// The rows are in the order in which sentence-transformers joins the results of several poolings.
struct PoolingRow {
    Pooling pooling;
    const char *name, *mode, *old_key;
};
constexpr PoolingRow kPoolings[] = {
    {Pooling::kCls, "cls", "cls", "pooling_mode_cls_token"},
    {Pooling::kMax, "max", "max", "pooling_mode_max_tokens"},
    {Pooling::kMean, "mean", "mean", "pooling_mode_mean_tokens"},
    {Pooling::kMeanSqrt, "mean_sqrt_len", "mean_sqrt_len_tokens",
     "pooling_mode_mean_sqrt_len_tokens"},
    {Pooling::kWeighted, "weightedmean", "weightedmean", "pooling_mode_weightedmean_tokens"},
    {Pooling::kLast, "last", "lasttoken", "pooling_mode_lasttoken"},
};

struct ActivationRow {
    const char* name;
    DenseActivation activation;
};
constexpr ActivationRow kActivations[] = {
    {"torch.nn.modules.linear.Identity", DenseActivation::kIdentity},
    {"torch.nn.modules.activation.Tanh", DenseActivation::kTanh},
    {"torch.nn.modules.activation.ReLU", DenseActivation::kRelu},
    {"torch.nn.modules.activation.Sigmoid", DenseActivation::kSigmoid},
    {"torch.nn.modules.activation.SiLU", DenseActivation::kSilu},
    {"torch.nn.modules.activation.GELU", DenseActivation::kGelu},
};

double Activated(DenseActivation activation, double x) {
    switch (activation) {
        case DenseActivation::kIdentity: return x;
        case DenseActivation::kTanh: return std::tanh(x);
        case DenseActivation::kRelu: return std::max(x, 0.0);
        case DenseActivation::kSigmoid: return 1 / (1 + std::exp(-x));
        case DenseActivation::kSilu: return x / (1 + std::exp(-x));
        case DenseActivation::kGelu: return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    }
    return x;
}

std::vector<float> Product(const DenseStep& dense, const std::vector<float>& x) {
    std::vector<float> out(static_cast<size_t>(dense.rows));
    for (size_t row = 0; row < out.size(); ++row) {
        double sum = dense.bias.empty() ? 0 : double{dense.bias[row]};
        const float* weight = dense.weight.data() + row * x.size();
        for (size_t i = 0; i < x.size(); ++i) sum += double{weight[i]} * double{x[i]};
        out[row] = static_cast<float>(Activated(dense.activation, sum));
    }
    return out;
}

// torch.nn.LayerNorm.
std::vector<float> Normed(const NormStep& norm, std::vector<float> x) {
    double mean = 0, squares = 0;
    for (const float each : x) mean += double{each};
    mean /= static_cast<double>(x.size());
    for (const float each : x) squares += (double{each} - mean) * (double{each} - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
    for (size_t i = 0; i < x.size(); ++i) {
        const double shift = norm.bias.empty() ? 0 : double{norm.bias[i]};
        x[i] = static_cast<float>((double{x[i]} - mean) * scale * double{norm.weight[i]} + shift);
    }
    return x;
}

// torch.nn.functional.normalize: a vector of zeros stays as it is.
void Normalize(std::vector<float>& x) {
    double squares = 0;
    for (const float each : x) squares += double{each} * double{each};
    const double length = std::max(std::sqrt(squares), 1e-12);
    for (float& each : x) each = static_cast<float>(double{each} / length);
}

// ---- Folders of sentence-transformers -----------------------------------------------------------

Error NotSupported(const std::string& where, const std::string& what) {
    return MakeError(ErrorCode::kUnsupported,
                     "{}: {} is not supported, and without it the vectors would be wrong", where,
                     what);
}

Result<std::vector<Pooling>> ReadPoolings(const Config& config) {
    std::vector<Pooling> poolings;
    if (!config.Has("pooling_mode")) {
        for (const PoolingRow& row : kPoolings) {
            WEFT_ASSIGN(const bool is_on, config.BoolOr({row.old_key}, false));
            if (is_on) poolings.push_back(row.pooling);
        }
        for (const auto& [key, value] : config.json().items()) {
            const auto known = std::ranges::find(kPoolings, key, &PoolingRow::old_key);
            const bool unknown = key.starts_with("pooling_mode") && known == std::end(kPoolings);
            if (unknown && value != false) return NotSupported(config.where(), Shown(key));
        }
        if (poolings.empty()) poolings.push_back(Pooling::kMean);
        return poolings;
    }
    std::vector<std::string> modes;
    if (config.json()["pooling_mode"].is_array()) {
        WEFT_ASSIGN(modes, config.Strings({"pooling_mode"}));
    } else {
        WEFT_ASSIGN(std::string mode, config.StringOr({"pooling_mode"}, ""));
        modes.push_back(std::move(mode));
    }
    for (const std::string& mode : modes) {
        const auto row = std::ranges::find(kPoolings, std::string_view(mode), &PoolingRow::mode);
        if (row == std::end(kPoolings)) {
            return NotSupported(config.where(), "pooling_mode '" + Shown(mode) + "'");
        }
        poolings.push_back(row->pooling);
    }
    if (poolings.empty()) return config.Corrupt("pooling_mode", "a pooling");
    return poolings;
}

Result<std::vector<float>> ReadNumbers(const hf::TensorFiles& files, const std::string& folder,
                                       const std::string& name, int64_t rows, int64_t cols) {
    const hf::SafeTensor* tensor = files.Find(name);
    std::vector<int64_t> shape{rows};
    if (cols > 0) shape.push_back(cols);
    std::optional<DType> dtype;
    if (tensor != nullptr && tensor->type == hf::SafeType::kF32) dtype = DType::kF32;
    if (tensor != nullptr && tensor->type == hf::SafeType::kF16) dtype = DType::kF16;
    if (tensor != nullptr && tensor->type == hf::SafeType::kBF16) dtype = DType::kBF16;
    if (!dtype || tensor->shape != shape) {
        return MakeError(ErrorCode::kCorrupt, "{}: no tensor '{}' of floats with shape [{}]",
                         folder, name, fmt::join(shape, ", "));
    }
    std::vector<std::byte> bytes(tensor->bytes);
    WEFT_TRY(files.file(*tensor).ReadAt(tensor->offset, bytes));
    std::vector<float> numbers(static_cast<size_t>(rows * std::max<int64_t>(cols, 1)));
    DequantizeRow(*dtype, bytes, numbers);
    return numbers;
}

// A module reads and writes the vector of the text.
Status CheckNames(const Config& config) {
    for (const char* key : {"module_input_name", "module_output_name"}) {
        WEFT_ASSIGN(const std::string name, config.StringOr({key}, "sentence_embedding"));
        if (name != "sentence_embedding") {
            return NotSupported(config.where(), fmt::format("{} '{}'", key, Shown(name)));
        }
    }
    return {};
}

Result<DenseStep> ReadDense(const std::string& folder, int64_t columns) {
    WEFT_ASSIGN(const Config config, Config::Read(folder + "/config.json"));
    WEFT_TRY(CheckNames(config));
    WEFT_ASSIGN(const bool residual, config.BoolOr({"use_residual"}, false));
    if (residual) return NotSupported(config.where(), "use_residual");
    DenseStep dense;
    WEFT_ASSIGN(dense.columns, config.NeedInt({"in_features"}, 1, kMostColumns));
    WEFT_ASSIGN(dense.rows, config.NeedInt({"out_features"}, 1, kMostColumns));
    if (dense.columns != columns) {
        return config.Corrupt("in_features", fmt::format("{}, as many as come in", columns));
    }
    WEFT_ASSIGN(const std::string name,
                config.StringOr({"activation_function"}, kActivations[1].name));
    const auto row = std::ranges::find(kActivations, std::string_view(name), &ActivationRow::name);
    if (row == std::end(kActivations)) {
        return NotSupported(config.where(), "activation_function '" + Shown(name) + "'");
    }
    dense.activation = row->activation;
    WEFT_ASSIGN(const bool bias, config.BoolOr({"bias"}, true));
    WEFT_ASSIGN(const hf::TensorFiles files, hf::TensorFiles::Open(folder));
    for (const hf::SafeTensor& tensor : files.tensors()) {
        const bool known = tensor.name == "linear.weight" || (bias && tensor.name == "linear.bias");
        if (!known) return NotSupported(folder, "tensor '" + Shown(tensor.name) + "'");
    }
    WEFT_ASSIGN(dense.weight, ReadNumbers(files, folder, "linear.weight", dense.rows, columns));
    if (!bias) return dense;
    WEFT_ASSIGN(dense.bias, ReadNumbers(files, folder, "linear.bias", dense.rows, 0));
    return dense;
}

// Reads the Transformer module's own file, which has one of several names.
Result<Config> ReadTransformer(const std::string& folder) {
    for (const char* family :
         {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"}) {
        WEFT_ASSIGN(Config config,
                    Config::ReadIfThere(fmt::format("{}/sentence_{}_config.json", folder, family)));
        if (!config.json().empty()) return config;
    }
    return Config(folder);
}

// Keys of the Transformer module that change a text before the model reads it. positions: the
// model's maximum; 0: unknown.
Status ReadCuts(const std::string& folder, int64_t positions, EmbeddingHead& head) {
    WEFT_ASSIGN(const Config transformer, ReadTransformer(folder));
    WEFT_ASSIGN(const bool lower, transformer.BoolOr({"do_lower_case"}, false));
    if (lower) return NotSupported(transformer.where(), "do_lower_case");
    WEFT_ASSIGN(const Config tokenizer, Config::ReadIfThere(folder + "/tokenizer_config.json"));
    WEFT_ASSIGN(const std::string side, tokenizer.StringOr({"truncation_side"}, "right"));
    head.cuts_begin = side == "left";
    WEFT_ASSIGN(const Config options, transformer.Sub({"processor_kwargs", "tokenizer_args"}));
    const bool given = options.Has("model_max_length") || transformer.Has("max_seq_length");
    const Config& from = options.Has("model_max_length") ? options
                         : given                         ? transformer
                                                         : tokenizer;
    // (transformers writes 1e30 for "no limit".)
    WEFT_ASSIGN(const double most, from.F64Or({"model_max_length", "max_seq_length"}, 1e30));
    if (!(most >= 1)) return from.Corrupt("max_seq_length", "1 or more");
    const auto unlimited = static_cast<double>(INT32_MAX);
    head.most_tokens = most < unlimited ? static_cast<int64_t>(most) : 0;
    if (given || positions == 0) return {};
    head.most_tokens = head.most_tokens == 0 ? positions : std::min(head.most_tokens, positions);
    return {};
}

Status ReadPromptsOf(const std::string& folder, EmbeddingHead& head) {
    WEFT_ASSIGN(const Config config,
                Config::ReadIfThere(folder + "/config_sentence_transformers.json"));
    WEFT_ASSIGN(const Config prompts, config.Sub({"prompts"}));
    for (const auto& [name, text] : prompts.json().items()) {
        WEFT_ASSIGN(head.prompts[name], prompts.StringOr({name}, ""));
    }
    WEFT_ASSIGN(const std::string name, config.StringOr({"default_prompt_name"}, ""));
    if (name.empty()) return {};
    if (!prompts.Has(name)) return config.Corrupt("default_prompt_name", "the name of a prompt");
    head.prompt = head.prompts[name];
    return {};
}

struct Module {
    std::string name, folder;  // "Pooling", "MODEL/1_Pooling"
};

Result<std::vector<Module>> ReadModules(const std::string& folder) {
    const std::string path = folder + "/modules.json";
    WEFT_ASSIGN(const std::string text, ReadModelText(path, hf::kMostConfigBytes));
    WEFT_ASSIGN(const Json list, hf::ParseJson(text, path));
    std::vector<Module> modules;
    if (!list.is_array() || list.size() > kMostModules) {
        return MakeError(ErrorCode::kCorrupt, "{}: not a list of at most {} modules", path,
                         kMostModules);
    }
    for (const Json& entry : list) {
        const Json type = entry.is_object() ? entry.value("type", Json()) : Json();
        const Json at = entry.is_object() ? entry.value("path", Json()) : Json();
        if (!type.is_string() || !at.is_string()) {
            return MakeError(ErrorCode::kCorrupt, "{}: a module without 'type' and 'path'", path);
        }
        const std::string whole = type.get<std::string>(), place = at.get<std::string>();
        if (place.find("..") != place.npos || place.starts_with('/')) {
            return MakeError(ErrorCode::kCorrupt, "{}: 'path' is {}; expected a folder below", path,
                             Shown(place));
        }
        const std::string name = whole.substr(whole.rfind('.') + 1);
        constexpr std::string_view kKnown[] = {"Transformer", "Pooling", "Dense",     "LayerNorm",
                                               "Normalize",   "Dropout", "LogitScore"};
        const bool known = whole.starts_with("sentence_transformers.") &&
                           std::ranges::find(kKnown, name) != std::end(kKnown);
        if (!known) return NotSupported(path, "module '" + Shown(whole) + "'");
        modules.push_back({name, place.empty() ? folder : folder + "/" + place});
    }
    const auto is = [&](size_t at, std::string_view name) {
        return at < modules.size() && modules[at].name == name;
    };
    const auto again = [](const Module& m) {
        return m.name == "Transformer" || m.name == "Pooling" || m.name == "LogitScore";
    };
    const auto parts = std::count_if(modules.begin(), modules.end(), again);
    // A reranker has a Transformer alone, whose head gives the score, or a LogitScore behind it.
    const bool alone = is(0, "Transformer") && modules.size() == 1;
    const bool pair = is(0, "Transformer") && (is(1, "Pooling") || is(1, "LogitScore"));
    if (!alone && !(pair && parts == 2 && (is(1, "Pooling") || modules.size() == 2))) {
        return NotSupported(path, "an order other than Transformer, Pooling, then other modules");
    }
    return modules;
}

Result<NormStep> ReadLayerNorm(const std::string& folder, int64_t columns) {
    WEFT_ASSIGN(const hf::TensorFiles files, hf::TensorFiles::Open(folder));
    NormStep norm;
    WEFT_ASSIGN(norm.weight, ReadNumbers(files, folder, "norm.weight", columns, 0));
    WEFT_ASSIGN(norm.bias, ReadNumbers(files, folder, "norm.bias", columns, 0));
    return norm;
}

Status ReadLogitScore(const std::string& folder, EmbeddingHead& head) {
    WEFT_ASSIGN(const Config config, Config::Read(folder + "/config.json"));
    WEFT_ASSIGN(head.score_tokens.yes, config.NeedInt({"true_token_id"}, 0, INT32_MAX));
    WEFT_ASSIGN(head.score_tokens.no, config.IntOr({"false_token_id"}, 0, INT32_MAX, -1));
    head.scores = true;
    head.steps.clear();
    return {};
}

// The module `module` after the pooling.
Status AddStep(const Module& module, const std::string& folder, int64_t columns,
               EmbeddingHead& head) {
    if (module.name == "Dropout") return {};
    if (module.name == "Dense") {
        WEFT_ASSIGN(DenseStep dense, ReadDense(module.folder, columns));
        head.steps.emplace_back(std::move(dense));
        return {};
    }
    if (module.name == "LayerNorm") {
        WEFT_ASSIGN(NormStep norm, ReadLayerNorm(module.folder, columns));
        head.steps.emplace_back(std::move(norm));
        return {};
    }
    if (module.folder != folder) {
        WEFT_ASSIGN(const Config config, Config::ReadIfThere(module.folder + "/config.json"));
        WEFT_TRY(CheckNames(config));
    }
    head.steps.emplace_back(UnitStep{});
    return {};
}

Result<EmbeddingHead> ReadFolderHead(const std::string& folder, int64_t hidden, int64_t positions) {
    WEFT_ASSIGN(const std::vector<Module> modules, ReadModules(folder));
    EmbeddingHead head{.from_file = true, .steps = {}};
    WEFT_TRY(ReadCuts(modules[0].folder, positions, head));
    WEFT_TRY(ReadPromptsOf(folder, head));
    head.poolings.clear();
    if (modules.size() == 1) return head;
    if (modules[1].name == "LogitScore") {
        WEFT_TRY(ReadLogitScore(modules[1].folder, head));
        return head;
    }
    WEFT_ASSIGN(const Config pooling, Config::Read(modules[1].folder + "/config.json"));
    WEFT_ASSIGN(head.poolings, ReadPoolings(pooling));
    WEFT_ASSIGN(const int64_t width,
                pooling.IntOr({"embedding_dimension", "word_embedding_dimension"}, 1, kMostColumns,
                              hidden));
    if (width != hidden) {
        return pooling.Corrupt(
            pooling.Has("embedding_dimension") ? "embedding_dimension" : "word_embedding_dimension",
            fmt::format("{}, the model's hidden size", hidden));
    }
    WEFT_ASSIGN(head.pools_prompt, pooling.BoolOr({"include_prompt"}, true));
    for (size_t i = 2; i < modules.size(); ++i) {
        WEFT_TRY(AddStep(modules[i], folder, head.Columns(hidden), head));
    }
    return head;
}

}  // namespace

const char* PoolingName(Pooling pooling) {
    return std::ranges::find(kPoolings, pooling, &PoolingRow::pooling)->name;
}

std::optional<Pooling> PoolingOfName(std::string_view name) {
    const auto row = std::ranges::find(kPoolings, name, &PoolingRow::name);
    if (row == std::end(kPoolings)) return std::nullopt;
    return row->pooling;
}

int64_t EmbeddingHead::Columns(int64_t hidden) const {
    int64_t columns = hidden * static_cast<int64_t>(poolings.size());
    for (const HeadStep& step : steps) {
        if (const auto* dense = std::get_if<DenseStep>(&step)) columns = dense->rows;
    }
    return columns;
}

Result<std::vector<float>> EmbeddingHead::Apply(std::vector<float> pooled) const {
    for (const HeadStep& step : steps) {
        if (const auto* dense = std::get_if<DenseStep>(&step)) {
            pooled = Product(*dense, pooled);
        } else if (const auto* norm = std::get_if<NormStep>(&step)) {
            pooled = Normed(*norm, std::move(pooled));
        } else {
            Normalize(pooled);
        }
    }
    const auto finite = [](float x) { return std::isfinite(x); };
    if (std::ranges::all_of(pooled, finite)) return pooled;
    return MakeError(ErrorCode::kCorrupt, "the vector has numbers that are not finite");
}

float EmbeddingHead::Activated(float score) const {
    return static_cast<float>(model_files::Activated(activation, double{score}));
}

std::optional<DenseActivation> ActivationOfName(std::string_view name) {
    const auto row = std::ranges::find(kActivations, name, &ActivationRow::name);
    if (row == std::end(kActivations)) return std::nullopt;
    return row->activation;
}

Result<EmbeddingHead> ReadEmbeddingHead(const ModelSource& source) {
    const Metadata& meta = source.meta();
    WEFT_ASSIGN(const std::string architecture, meta.StringOr("general.architecture", ""));
    const std::string folder = source.folder();
    EmbeddingHead head;
    const bool sentences = !folder.empty() && IsListed(folder + "/modules.json");
    WEFT_ASSIGN(const int64_t positions,
                meta.IntOr(architecture + ".context_length", 0, INT32_MAX, 0));
    if (sentences) {
        WEFT_ASSIGN(const int64_t hidden,
                    meta.Int(architecture + ".embedding_length", 1, kMostColumns));
        WEFT_ASSIGN(head, ReadFolderHead(folder, hidden, positions));
        if (head.scores) WEFT_TRY(SetScoreTokens(source, head.score_tokens, head));
        if (!head.poolings.empty()) return head;
    }
    if (HasScoreHead(source)) {
        if (!sentences && !folder.empty()) WEFT_TRY(ReadCuts(folder, positions, head));
        WEFT_TRY(ReadScoreHead(source, head));
        return head;
    }
    if (sentences) return NotSupported(folder + "/modules.json", "a Transformer without a Pooling");
    const std::string key = architecture + ".pooling_type";
    WEFT_ASSIGN(const int64_t type, meta.IntOr(key, 0, 100, 0));
    constexpr std::array kTypes = {Pooling::kLast, Pooling::kMean, Pooling::kCls, Pooling::kLast};
    if (type >= std::ssize(kTypes)) {
        return NotSupported(
            source.name(), fmt::format("{} {}{}", key, type,
                                       type == 4 ? " (a reranker) without cls.output.weight" : ""));
    }
    head.from_file = type != 0;
    head.poolings = {kTypes[static_cast<size_t>(type)]};
    return head;
}

}  // namespace weft::model_files
