#include "model_files/lora/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/text.h"
#include "model_files/hf/quantization.h"

namespace weft::model_files {
namespace {

using hf::Config;
using hf::Json;

// The default next step.
constexpr std::string_view kMerge =
    "merge it with peft (merge_and_unload(), then save_pretrained()), and use that model";
// The values of keys that LoraUse::kApply allows.
constexpr std::string_view kWeftMerge =
    "'weft merge MODEL --lora DIR -o OUT' writes a model with it, which you can use";

struct Refused {
    std::string_view key, what, next;
};
constexpr Refused kRefused[] = {
    {"bias", "biases of the model were trained, too", kWeftMerge},
    {"use_dora", "DoRA multiplies each row by a trained magnitude", kWeftMerge},
    {"modules_to_save", "whole modules were trained in addition to the adapter", kWeftMerge},
    {"lora_bias", "B has a bias", kMerge},
    {"trainable_token_indices", "rows of the embedding were trained, too", kWeftMerge},
    {"use_qalora", "QALoRA reads means of groups of columns", kMerge},
    {"layer_replication", "the adapter is for a model with repeated layers", kMerge},
    {"use_bdlora", "BD-LoRA keeps only blocks of A or B", kMerge},
    {"monteclora_config", "MonteCLoRA draws A at random", kMerge},
    {"kasa_config", "KaSA changes the model's weights and has a diagonal between A and B", kMerge},
    {"megatron_config", "it is for Megatron's parallel layers", kMerge},
    {"enable_lora", "it has adapters for parts of a matrix", kMerge},
    {"arrow_config", "Arrow chooses one of several adapters per token",
     "use one of those adapters"},
    {"alora_invocation_tokens", "aLoRA applies only after its invocation tokens",
     "use a LoRA adapter without them: Weft applies an adapter to a whole sequence"},
};

constexpr std::string_view kHarmless[] = {
    "peft_type", "task_type", "auto_mapping", "peft_version", "revision", "inference_mode",
    "megatron_core", "base_model_name_or_path", "merge_weights", "qalora_group_size",
    // Initialization of A and B, which init_lora_weights names.
    "loftq_config", "eva_config", "corda_config", "lora_ga_config",
    // The names of the adapter's tensors show their effect.
    "exclude_modules", "layers_to_transform", "layers_pattern",
    // GPT-2 stores its weights transposed. A and B have the same shapes with and without this key.
    "fan_in_fan_out",
    // The backward pass; tied weights outside the adapter.
    "velora_config", "runtime_config", "ensure_weight_tying"};
constexpr std::string_view kRead[] = {"r",
                                      "lora_alpha",
                                      "use_rslora",
                                      "target_modules",
                                      "target_parameters",
                                      "rank_pattern",
                                      "alpha_pattern",
                                      "lora_dropout",
                                      "init_lora_weights"};

// Whether a key's value is empty, so that the key has no effect.
bool MeansNothing(const Json& value) {
    return value.is_null() || value == false || value == "none" || value == "" ||
           (value.is_structured() && value.empty());
}

Error UnsupportedAdapter(const Config& config, std::string_view key, const Json& value,
                         std::string_view what, std::string_view next) {
    return MakeError(ErrorCode::kUnsupported,
                     "{}: '{}' is {}: {}. Weft supports adapters that only add A and B to the "
                     "model's weights: {}",
                     config.where(), key, hf::Shown(value.dump()), what, next);
}

Status CheckKeys(const Config& config, LoraUse use) {
    const Json& json = config.json();
    for (const auto& [key, value] : json.items()) {
        const bool taken = std::ranges::find(kHarmless, key) != std::end(kHarmless) ||
                           std::ranges::find(kRead, key) != std::end(kRead);
        if (taken || MeansNothing(value)) continue;
        const auto known = std::ranges::find(kRefused, key, &Refused::key);
        if (known != std::end(kRefused)) {
            if (use == LoraUse::kApply && known->next == kWeftMerge) continue;
            return UnsupportedAdapter(config, key, value, known->what, known->next);
        }
        if (value == 0) continue;
        return UnsupportedAdapter(
            config, key, value, "the effect of this key is not known to Weft",
            "remove the key if it has no effect, or merge the adapter with the program that made "
            "it, and use that model");
    }
    return {};
}

// The initialization of A and B does not matter afterwards, unless it changed the model's weights:
// then the adapter fits only the changed weights. (peft's converted adapters state true.)
Status CheckBegin(const Config& config) {
    const auto found = config.json().find("init_lora_weights");
    if (found == config.json().end() || found->is_null() || found->is_boolean()) return {};
    const std::string began = found->is_string() ? LowerCase(found->get<std::string>()) : "";
    for (const char* kept : {"gaussian", "eva", "orthogonal", "mica", "true", "false"}) {
        if (began == kept) return {};
    }
    const bool changes = began.starts_with("pissa") || began.starts_with("corda") ||
                         began == "olora" || began == "lora_ga" || began == "loftq";
    if (!changes) {
        return UnsupportedAdapter(config, "init_lora_weights", *found,
                                  "this initialization is not known to Weft, and may change the "
                                  "model's weights",
                                  kMerge);
    }
    return UnsupportedAdapter(
        config, "init_lora_weights", *found,
        "this initialization changes the model's weights, and the adapter only fits the changed "
        "ones",
        began == "loftq"
            ? "merge it with peft; or, if MODEL is the model written by LoftQ, set the key to true"
            : "convert it with peft's save_pretrained(..., "
              "path_initial_model_for_weight_conversion=...), or, if MODEL has the changed "
              "weights, set the key to true");
}

Status CheckKind(const Config& config) {
    WEFT_ASSIGN(const std::string type, config.StringOr({"peft_type"}, "LORA"));
    if (UpperCase(type) == "LORA") return {};
    return MakeError(ErrorCode::kUnsupported,
                     "{}: peft_type is {}; expected LORA. Other kinds of adapters are not "
                     "supported: {}",
                     config.where(), hf::Shown(type), kMerge);
}

// 8, or 8.0 as some programs write it.
Result<int64_t> RankOf(const Config& config) {
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

// Modules of which each layer must have an adapter; "": unknown.
Result<std::string> ListedTargets(const Config& config) {
    for (const char* some : {"exclude_modules", "layers_to_transform", "target_parameters"}) {
        if (!MeansNothing(config.json().value(some, Json()))) return std::string();
    }
    const auto targets = config.json().find("target_modules");
    if (targets != config.json().end() && targets->is_string()) return std::string();
    WEFT_ASSIGN(const std::vector<std::string> modules, config.Strings({"target_modules"}));
    if (modules.empty()) return config.Corrupt("target_modules", "a list of modules");
    return fmt::format("{}", fmt::join(modules, ","));
}

// trainable_token_indices: a list for the embedding, or an object of lists by module.
Result<std::map<std::string, std::vector<int64_t>>> ReadTokens(const Config& config) {
    constexpr const char* kKey = "trainable_token_indices";
    std::map<std::string, std::vector<int64_t>> read;
    Json all = config.json().value(kKey, Json());
    if (MeansNothing(all)) return read;
    if (all.is_array()) all = {{"", all}};
    if (!all.is_object()) return config.Corrupt(kKey, "a list of tokens");
    for (const auto& [module, tokens] : all.items()) {
        const auto is_token = [](const Json& token) {
            return token.is_number_unsigned() && token.get<uint64_t>() < uint64_t{1} << 31;
        };
        if (!tokens.is_array() || !std::ranges::all_of(tokens, is_token)) {
            return config.Corrupt(kKey, "lists of tokens");
        }
        read[module] = tokens.get<std::vector<int64_t>>();
    }
    return read;
}

// An object of numbers by the ends of module names, which are expressions, in the order of the
// file.
Result<std::vector<ModuleNumber>> ReadPattern(const Config& config, std::string_view text,
                                              const char* key) {
    constexpr size_t kMostPatterns = 4096;
    std::vector<ModuleNumber> read;
    const Json patterns = config.json().value(key, Json());
    if (MeansNothing(patterns)) return read;
    if (!patterns.is_object() || patterns.size() > kMostPatterns) {
        return config.Corrupt(key, "an object of numbers");
    }
    WEFT_ASSIGN(const Config object, config.Sub({key}));
    const size_t begin = std::min(text.find(fmt::format("\"{}\"", key)), text.size());
    for (const std::string& ending : hf::KeysInOrder(object, text.substr(begin))) {
        const Json& number = patterns.at(ending);
        if (!number.is_number() || !(number > 0)) {
            return config.Corrupt(key, "an object of positive numbers");
        }
        auto regex = tokenizer::Regex::MakeForeign("^(?:.*\\.)?(?:" + ending + ")$");
        if (!regex.ok()) {
            return MakeError(ErrorCode::kUnsupported, "{}: {}: the expression '{}': {}",
                             config.where(), key, hf::Shown(ending), regex.error().message);
        }
        read.push_back({std::move(*regex), number.get<double>()});
    }
    return read;
}

double NumberOf(const std::vector<ModuleNumber>& numbers, const std::string& module,
                double fallback) {
    constexpr int64_t kMostMatchNs = 10'000'000;
    tokenizer::RegexRun run(module.size(), kMostMatchNs);
    for (const ModuleNumber& one : numbers) {
        tokenizer::RegexRun::Range found{};
        if (run.Next(one.ending, module, 0, found)) return one.number;
    }
    return fallback;
}

}  // namespace

int64_t AdapterConfig::RankOf(const std::string& module) const {
    return static_cast<int64_t>(NumberOf(ranks, module, static_cast<double>(words.rank)));
}

double AdapterConfig::AlphaOf(const std::string& module) const {
    return NumberOf(alphas, module, words.alpha);
}

Result<AdapterConfig> ParseAdapterConfig(const Config& config, std::string_view text, LoraUse use) {
    WEFT_TRY(CheckKind(config));
    WEFT_TRY(CheckKeys(config, use));
    WEFT_TRY(CheckBegin(config));
    AdapterConfig read;
    LoraOptions& words = read.words;
    WEFT_ASSIGN(words.rank, RankOf(config));
    WEFT_ASSIGN(words.alpha, config.F64Or({"lora_alpha"}, words.alpha));
    WEFT_ASSIGN(words.rslora, config.BoolOr({"use_rslora"}, false));
    WEFT_ASSIGN(read.dora, config.BoolOr({"use_dora"}, false));
    if (!MeansNothing(config.json().value("modules_to_save", Json()))) {
        WEFT_ASSIGN(read.saved, config.Strings({"modules_to_save"}));
    }
    if (!MeansNothing(config.json().value("target_parameters", Json()))) {
        WEFT_ASSIGN(read.parameters, config.Strings({"target_parameters"}));
    }
    read.scores = config.json().value("task_type", Json()) == "SEQ_CLS";
    WEFT_ASSIGN(read.tokens, ReadTokens(config));
    WEFT_ASSIGN(words.targets, ListedTargets(config));
    WEFT_ASSIGN(read.ranks, ReadPattern(config, text, "rank_pattern"));
    WEFT_ASSIGN(read.alphas, ReadPattern(config, text, "alpha_pattern"));
    return read;
}

Result<double> AdapterDropout(const std::string& folder) {
    WEFT_ASSIGN(const Config config, Config::Read(folder + kAdapterConfigName));
    return config.F64Or({"lora_dropout"}, 0);
}

}  // namespace weft::model_files
