#include "model_files/lora/adapter_config.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/text.h"

namespace weft::model_files {
namespace {

using hf::Config;
using hf::Json;

// The default next step.
constexpr std::string_view kMerge =
    "merge it with peft (merge_and_unload(), then save_pretrained()), and use that model";

struct Refused {
    std::string_view key, what, next;
};
constexpr Refused kRefused[] = {
    {"bias", "biases of the model were trained, too", kMerge},
    {"use_dora", "DoRA multiplies each row by a trained magnitude", kMerge},
    {"fan_in_fan_out", "the weights are stored transposed", kMerge},
    {"modules_to_save", "whole modules were trained in addition to the adapter", kMerge},
    {"rank_pattern", "some modules have ranks of their own", kMerge},
    {"alpha_pattern", "some modules have an alpha of their own", kMerge},
    {"layers_to_transform", "only some layers have adapters", kMerge},
    {"target_parameters", "parameters outside modules have adapters", kMerge},
    {"lora_bias", "B has a bias", kMerge},
    {"trainable_token_indices", "rows of the embedding were trained, too", kMerge},
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
    // Details of refused keys; the backward pass; tied weights outside the adapter.
    "layers_pattern", "velora_config", "runtime_config", "ensure_weight_tying"};
constexpr std::string_view kRead[] = {"r",
                                      "lora_alpha",
                                      "use_rslora",
                                      "target_modules",
                                      "exclude_modules",
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

// Whether the patterns only repeat the adapter's one rank or alpha.
bool IsUniform(const Json& patterns, const Json& config, const char* key) {
    const auto same = config.find(key);
    return patterns.is_object() && same != config.end() && same->is_number() &&
           std::ranges::all_of(patterns, [&](const Json& value) { return value == *same; });
}

// Whether the list is 0, 1, 2, ...: the first layers. (If the model has more, their tensors are
// missing in the adapter's file, which is reported by name.)
bool IsAllLayers(const Json& layers) {
    if (!layers.is_array()) return false;
    for (size_t i = 0; i < layers.size(); ++i) {
        if (layers[i] != i) return false;
    }
    return true;
}

Status CheckKeys(const Config& config) {
    const Json& json = config.json();
    for (const auto& [key, value] : json.items()) {
        const bool taken = std::ranges::find(kHarmless, key) != std::end(kHarmless) ||
                           std::ranges::find(kRead, key) != std::end(kRead);
        if (taken || MeansNothing(value)) continue;
        if (key == "rank_pattern" && IsUniform(value, json, "r")) continue;
        if (key == "alpha_pattern" && IsUniform(value, json, "lora_alpha")) continue;
        const bool patterned = !MeansNothing(json.value("layers_pattern", Json()));
        if (key == "layers_to_transform" && !patterned && IsAllLayers(value)) continue;
        const auto known = std::ranges::find(kRefused, key, &Refused::key);
        if (known != std::end(kRefused)) {
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

}  // namespace

Status CheckAdapterConfig(const Config& config) {
    WEFT_TRY(CheckKind(config));
    WEFT_TRY(CheckKeys(config));
    return CheckBegin(config);
}

Result<std::string> AdapterTargets(const Config& config) {
    const auto excluded = config.json().find("exclude_modules");
    const bool excludes = excluded != config.json().end() && !MeansNothing(*excluded);
    const auto targets = config.json().find("target_modules");
    if (targets != config.json().end() && targets->is_string()) {
        return *targets == "all-linear" && !excludes ? std::string("all") : std::string();
    }
    if (excludes) return std::string();
    WEFT_ASSIGN(const std::vector<std::string> modules, config.Strings({"target_modules"}));
    if (modules.empty()) return config.Corrupt("target_modules", "a list of modules");
    return fmt::format("{}", fmt::join(modules, ","));
}

Error UnknownTargets(const Config& config) {
    const Json excluded = config.json().value("exclude_modules", Json());
    if (!MeansNothing(excluded)) {
        return UnsupportedAdapter(config, "exclude_modules", excluded,
                                  "some of the target modules have no adapter", kMerge);
    }
    return MakeError(ErrorCode::kUnsupported,
                     "{}: 'target_modules' is the pattern {}, and there is no "
                     "adapter_model.safetensors from which to take the modules; expected a list of "
                     "modules, such as [\"q_proj\", \"v_proj\"]",
                     config.where(), hf::Shown(config.json().at("target_modules").dump()));
}

Result<double> AdapterDropout(const std::string& folder) {
    WEFT_ASSIGN(const Config config, Config::Read(folder + kAdapterConfigName));
    return config.F64Or({"lora_dropout"}, 0);
}

}  // namespace weft::model_files
