// Makes config.json: the folder's own, or one from GGUF metadata.
#include <algorithm>
#include <cmath>

#include "model_files/hf/export.h"
#include "model_files/hf/family.h"
#include "model_files/hf/folder_config.h"

namespace weft::model_files::hf {
namespace {

constexpr int64_t kMostNumber = int64_t{1} << 31, kMostBlocks = 4096;

// The families with a class.
std::vector<const Family*> Written() {
    std::vector<const Family*> all;
    for (const std::span<const Family> some : AllTables()) {
        for (const Family& family : some) {
            if (!family.written.name.empty()) all.push_back(&family);
        }
    }
    return all;
}

// nullptr: none.
const Family* FindWritten(std::string_view Family::*field, std::string_view value) {
    const std::vector<const Family*> all = Written();
    const auto found =
        std::ranges::find(all, value, [&](const Family* one) { return one->*field; });
    return found == all.end() ? nullptr : *found;
}

Error Unsupported(const ModelSource& source, std::string_view what) {
    return MakeError(ErrorCode::kUnsupported,
                     "{}: {}: the model cannot be written as a Hugging Face folder; write a GGUF "
                     "file instead (--save-format gguf)",
                     source.name(), what);
}

// The double given by the shortest decimal of a float.
double Short(double value) {
    return std::stod(fmt::format("{}", static_cast<float>(value)));
}

// Reads metadata under "ARCHITECTURE.".
class Keys {
  public:
    Keys(const ModelSource& source, const std::string& architecture)
        : meta_(source.meta()), prefix_(architecture + ".") {}
    bool Has(const char* key) const { return meta_.Has(prefix_ + key); }
    Result<int64_t> Int(const char* key, int64_t most = kMostNumber) const {
        return meta_.Int(prefix_ + key, 1, most);
    }
    Result<int64_t> IntOr(const char* key, int64_t fallback) const {
        return meta_.IntOr(prefix_ + key, 0, kMostNumber, fallback);
    }
    // Rounded to the shortest decimal of the file's float, which JSON shows best.
    Result<double> F64Or(const char* key, double fallback) const {
        WEFT_ASSIGN(const double value, meta_.F64Or(prefix_ + key, fallback));
        return Short(value);
    }
    Result<bool> BoolOr(const char* key, bool fallback) const {
        return meta_.BoolOr(prefix_ + key, fallback);
    }
    Result<std::string> StringOr(const char* key, std::string fallback) const {
        return meta_.StringOr(prefix_ + key, std::move(fallback));
    }
    const MetaEntry* Find(const char* key) const { return meta_.Find(prefix_ + key); }
    Result<std::vector<int64_t>> Ints(const char* key) const { return meta_.Ints(prefix_ + key); }

  private:
    const Metadata& meta_;
    std::string prefix_;
};

Status AddSizes(const ModelSource& source, const Keys& keys, const Family& family, Json& config) {
    WEFT_ASSIGN(const TensorInfo* embedding, source.NeedTensor("token_embd.weight"));
    WEFT_ASSIGN(const int64_t heads, keys.Int("attention.head_count"));
    WEFT_ASSIGN(const int64_t kv_heads, keys.IntOr("attention.head_count_kv", heads));
    WEFT_ASSIGN(const int64_t head_dim,
                keys.IntOr("attention.key_length", embedding->cols / heads));
    if (head_dim < 2) {
        return Unsupported(source, fmt::format("{} heads in {} columns", heads, embedding->cols));
    }
    WEFT_ASSIGN(const int64_t value_dim, keys.IntOr("attention.value_length", head_dim));
    WEFT_ASSIGN(const int64_t rotary, keys.IntOr("rope.dimension_count", head_dim));
    const bool partial = family.rope.partial;
    const double share = static_cast<double>(rotary) / static_cast<double>(head_dim);
    if (partial) config["partial_rotary_factor"] = share;
    if (value_dim != head_dim || (rotary != head_dim && !partial)) {
        return Unsupported(source, fmt::format("heads of {} dims, {} of them rotated, with values "
                                               "of {}",
                                               head_dim, rotary, value_dim));
    }
    WEFT_ASSIGN(config["num_hidden_layers"], keys.Int("block_count", kMostBlocks));
    WEFT_ASSIGN(config["intermediate_size"], keys.Int("feed_forward_length"));
    WEFT_ASSIGN(config["max_position_embeddings"], keys.IntOr("context_length", 4096));
    WEFT_ASSIGN(config["rms_norm_eps"], keys.F64Or("attention.layer_norm_rms_epsilon", 1e-5));
    config["hidden_size"] = embedding->cols;
    config["vocab_size"] = embedding->rows;
    config["num_attention_heads"] = heads;
    config["num_key_value_heads"] = kv_heads;
    config["head_dim"] = head_dim;
    return {};
}

// The parameters of Llama 3's scaling. GGUF files have only the resulting divisors. All released
// models have the same parameters except for the factor, which is the largest divisor.
Result<Json> Llama3Scaling(const ModelSource& source, const TensorInfo& tensor, double theta) {
    WEFT_ASSIGN(const std::vector<float> factors, source.ReadFloats(tensor));
    const float factor = *std::ranges::max_element(factors);
    Json scaling = {{"rope_type", "llama3"},
                    {"factor", std::stod(fmt::format("{}", factor))},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 8192}};
    RopeConfig rope;
    rope.theta = theta;
    WEFT_ASSIGN(rope.params, Config::Parse(scaling.dump(), source.name()));
    WEFT_ASSIGN(const std::vector<float> made,
                Llama3Factors(rope, 2 * static_cast<int64_t>(factors.size())));
    for (size_t i = 0; i < factors.size(); ++i) {
        // (Divisors are computed in double or float and then rounded: allow a relative 2^-21.)
        if (!(std::abs(made[i] / factors[i] - 1) <= 4.8e-7f)) {
            return Unsupported(source,
                               "rope_freqs.weight does not have the RoPE scaling of a released "
                               "Llama 3");
        }
    }
    return scaling;
}

// Phi-3's factors, one per pair of rotated dims.
Status AddLongRope(const ModelSource& source, const Keys& keys, const Family& family,
                   Json& config) {
    const TensorInfo* near = source.FindTensor("rope_factors_short.weight");
    const TensorInfo* far = source.FindTensor("rope_factors_long.weight");
    if (!family.rope.only_longrope || near == nullptr || far == nullptr) {
        return Unsupported(source, "RoPE scaling 'longrope'");
    }
    Json scaling = {{"type", "longrope"}};
    for (const auto& [key, tensor] :
         {std::pair{"short_factor", near}, std::pair{"long_factor", far}}) {
        WEFT_ASSIGN(const std::vector<float> factors, source.ReadFloats(*tensor));
        for (const float factor : factors) scaling[key].push_back(Short(factor));
    }
    const int64_t context = config["max_position_embeddings"];
    WEFT_ASSIGN(const int64_t original,
                keys.IntOr("rope.scaling.original_context_length", context));
    config["original_max_position_embeddings"] = original;
    const double scale = static_cast<double>(context) / static_cast<double>(original);
    const double usual =
        scale <= 1 ? 1 : std::sqrt(1 + std::log(scale) / std::log(static_cast<double>(original)));
    WEFT_ASSIGN(const double factor, keys.F64Or("rope.scaling.attn_factor", 1));
    if (!(std::abs(factor / usual - 1) <= 1e-6)) scaling["attention_factor"] = factor;
    config["rope_scaling"] = std::move(scaling);
    return {};
}

Status AddRope(const ModelSource& source, const Keys& keys, const Family& family, Json& config) {
    WEFT_ASSIGN(const double theta, keys.F64Or("rope.freq_base", 10000));
    config["rope_theta"] = theta;
    const std::string_view windowed = family.rope.windowed_base;
    if (!windowed.empty() && windowed != "rope_theta") {  // else AddRopeByLayer
        WEFT_ASSIGN(config[windowed], keys.F64Or("rope.freq_base_swa", 10000));
    }
    if (keys.Has("rope.scaling.dynamic_factor")) {
        WEFT_ASSIGN(const double dynamic, keys.F64Or("rope.scaling.dynamic_factor", 1));
        config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", dynamic}};
        return {};
    }
    const char* const usual = keys.Has("rope.scaling.factor") ? "linear" : "none";
    WEFT_ASSIGN(const std::string type, keys.StringOr("rope.scaling.type", usual));
    WEFT_ASSIGN(const double factor, keys.F64Or("rope.scaling.factor", 1));
    if (const TensorInfo* factors = source.FindTensor("rope_freqs.weight")) {
        WEFT_ASSIGN(config["rope_scaling"], Llama3Scaling(source, *factors, theta));
        return {};
    }
    const bool vectors = source.FindTensor("rope_factors_long.weight") != nullptr;
    if (vectors || type == "longrope") return AddLongRope(source, keys, family, config);
    if (type == "none" || type == "default") return {};
    if (type == "linear") {
        config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
        return {};
    }
    const bool plain = !keys.Has("rope.scaling.attn_factor") &&
                       !keys.Has("rope.scaling.yarn_attn_factor") &&
                       !keys.Has("rope.scaling.yarn_log_multiplier");
    if (type != "yarn" || !plain) return Unsupported(source, "RoPE scaling '" + type + "'");
    WEFT_ASSIGN(const int64_t original, keys.Int("rope.scaling.original_context_length"));
    WEFT_ASSIGN(const double fast, keys.F64Or("rope.scaling.yarn_beta_fast", 32));
    WEFT_ASSIGN(const double slow, keys.F64Or("rope.scaling.yarn_beta_slow", 1));
    WEFT_ASSIGN(const bool truncate, keys.BoolOr("rope.scaling.yarn_truncate", true));
    config["rope_scaling"] = {{"rope_type", "yarn"}, {"truncate", truncate},
                              {"factor", factor},    {"original_max_position_embeddings", original},
                              {"beta_fast", fast},   {"beta_slow", slow}};
    return {};
}

// OLMo 3 scales RoPE only in layers without a window. transformers from 5 on reads the base of
// windowed layers only from this spelling.
Status AddRopeByLayer(const Keys& keys, Json& config) {
    Json full = config.value("rope_scaling", Json{{"rope_type", "default"}});
    Json sliding = {{"rope_type", "default"}};
    full["rope_theta"] = config["rope_theta"];
    WEFT_ASSIGN(sliding["rope_theta"], keys.F64Or("rope.freq_base_swa", config["rope_theta"]));
    config["rope_parameters"] = {{"full_attention", std::move(full)},
                                 {"sliding_attention", std::move(sliding)}};
    return {};
}

// A matrix must have its bias in all layers or none, and Q, K and V must agree.
Status AddBiases(const ModelSource& source, const Family& family, Json& config) {
    const int64_t layers = config["num_hidden_layers"];
    const auto all = [&](const char* module) -> Result<bool> {
        int64_t count = 0;
        for (int64_t layer = 0; layer < layers; ++layer) {
            const std::string name = fmt::format("blk.{}.{}.bias", layer, module);
            count += source.FindTensor(name) != nullptr ? 1 : 0;
        }
        if (count == 0 || count == layers) return count == layers;
        return Unsupported(source,
                           fmt::format("a bias of {} in {} of {} layers", module, count, layers));
    };
    WEFT_ASSIGN(const bool query, all("attn_q"));
    WEFT_ASSIGN(const bool key, all("attn_k"));
    WEFT_ASSIGN(const bool value, all("attn_v"));
    WEFT_ASSIGN(const bool packed, all("attn_qkv"));
    WEFT_ASSIGN(const bool out, all("attn_output"));
    const bool by_key = family.written.attention == ClassBias::kByKey;
    const bool expected = by_key ? query : family.written.attention == ClassBias::kAlways;
    if (query != expected || key != query || value != query || packed || out != (by_key && query)) {
        return Unsupported(source, "biases on only some attention matrices");
    }
    if (by_key) config["attention_bias"] = query;
    WEFT_ASSIGN(const bool gate, all("ffn_gate"));
    WEFT_ASSIGN(const bool up, all("ffn_up"));
    WEFT_ASSIGN(const bool down, all("ffn_down"));
    if (gate != up || down != up || (up && !family.written.mlp_bias)) {
        return Unsupported(source, "biases in the MLP");
    }
    if (family.written.mlp_bias) config["mlp_bias"] = up;
    return {};
}

// The windowed layers; `size` 0: none. The defaults are those of model::ReadHyper.
struct WindowPlan {
    int64_t size = 0;
    std::vector<bool> layers;
};

Result<WindowPlan> ReadWindows(const Keys& keys, const std::string& architecture) {
    WindowPlan plan;
    const Family* const first = FindWritten(&Family::architecture, architecture);
    const ModelClass usual = first == nullptr ? ModelClass{} : first->written;
    WEFT_ASSIGN(const int64_t layers, keys.Int("block_count", kMostBlocks));
    WEFT_ASSIGN(plan.size, keys.IntOr("attention.sliding_window", usual.window));
    if (plan.size == 0) return plan;
    constexpr const char* kPattern = "attention.sliding_window_pattern";
    const MetaEntry* entry = keys.Find(kPattern);
    if (entry != nullptr && entry->type == MetaType::kArray) {
        WEFT_ASSIGN(const std::vector<int64_t> list, keys.Ints(kPattern));
        for (const int64_t slides : list) plan.layers.push_back(slides != 0);
        plan.layers.resize(static_cast<size_t>(layers));
        return plan;
    }
    WEFT_ASSIGN(const int64_t pattern, keys.IntOr(kPattern, usual.pattern));
    for (int64_t layer = 0; layer < layers; ++layer) {
        plan.layers.push_back(pattern == 0 || layer % pattern < pattern - 1);
    }
    return plan;
}

Status AddWindows(const ModelSource& source, const WindowPlan& plan, const Family& family,
                  Json& config) {
    const ClassWindows windows = family.written.windows;
    if (plan.size == 0 && family.written.scales != ClassScales::kGemma) return {};
    if (windows == ClassWindows::kNone) return Unsupported(source, "sliding windows");
    if (plan.size > 0) config["sliding_window"] = plan.size;
    if (windows == ClassWindows::kAll) {
        const bool all = std::ranges::count(plan.layers, false) == 0;
        return all ? Status() : Unsupported(source, "sliding windows in only some layers");
    }
    const size_t layers = config["num_hidden_layers"];
    for (size_t layer = 0; layer < layers; ++layer) {
        const bool slides = plan.size > 0 && plan.layers[layer];
        config["layer_types"].push_back(slides ? "sliding_attention" : "full_attention");
    }
    if (windows == ClassWindows::kUsed) config["use_sliding_window"] = true;
    return {};
}

// transformers reads this key as an integer only, and other keys of floats as floats only. Rounds a
// number that is whole but for the rounding of a square root in float32.
Status MakeWhole(const ModelSource& source, Json& config) {
    const auto key = config.find("query_pre_attn_scalar");
    if (key == config.end() || !key->is_number_float()) return {};
    const double value = key->get<double>(), whole = std::round(value);
    if (!(whole >= 1 && whole <= kMostNumber && std::abs(value / whole - 1) <= 1e-6)) {
        return Unsupported(source, fmt::format("query_pre_attn_scalar {} (1 / the square of the "
                                               "attention's scale) is not a whole number, which "
                                               "transformers needs",
                                               value));
    }
    *key = static_cast<int64_t>(whole);
    return {};
}

// Gemma's and Granite's factors on scores, logits and the residual stream, under their config.json
// names.
Status AddScales(const ModelSource& source, const Keys& keys, const Family& family, Json& config) {
    const ModelClass& model = family.written;
    const bool gemma = model.scales == ClassScales::kGemma;
    const double head_dim = config["head_dim"];
    if (model.scales == ClassScales::kGranite) {
        WEFT_ASSIGN(config["attention_multiplier"],
                    keys.F64Or("attention.scale", 1 / std::sqrt(head_dim)));
        WEFT_ASSIGN(config["embedding_multiplier"], keys.F64Or("embedding_scale", 1));
        WEFT_ASSIGN(config["residual_multiplier"], keys.F64Or("residual_scale", 1));
        WEFT_ASSIGN(config["logits_scaling"], keys.F64Or("logit_scale", 1));
        return {};
    }
    for (const char* key :
         {"attention.scale", "attn_logit_softcapping", "final_logit_softcapping"}) {
        if (!gemma && keys.Has(key)) return Unsupported(source, fmt::format("{} is set", key));
    }
    if (!gemma) return {};
    // (The largest Gemma 2 and 3 scale by hidden / heads: model::ReadHyper.)
    const int64_t layers = config["num_hidden_layers"], heads = config["num_attention_heads"];
    const bool by_hidden = layers == model.layers_by_hidden;
    const int64_t hidden = config["hidden_size"];
    config["query_pre_attn_scalar"] = by_hidden ? hidden / heads : static_cast<int64_t>(head_dim);
    if (keys.Has("attention.scale")) {
        WEFT_ASSIGN(const double scale, keys.F64Or("attention.scale", 0));
        if (!(scale > 0)) return Unsupported(source, "attention.scale is 0");
        config["query_pre_attn_scalar"] = 1 / (scale * scale);
    }
    for (const auto& [key, usual] : {std::pair{"attn_logit_softcapping", model.attention_cap},
                                     std::pair{"final_logit_softcapping", model.logit_cap}}) {
        WEFT_ASSIGN(const double cap, keys.F64Or(key, usual));
        config[key] = cap > 0 ? Json(cap) : Json();
    }
    config.erase("hidden_act");
    config["hidden_activation"] = "gelu_pytorch_tanh";
    return {};
}

// Mixtral always renormalizes the weights of the chosen experts; Qwen's models have a key for it.
Status AddExpertConfig(const ModelSource& source, const Keys& keys, const Family& family,
                       Json& config) {
    const bool always = family.written.experts, shared = family.written.shared_expert;
    WEFT_ASSIGN(const bool norm, keys.BoolOr("expert_weights_norm", !shared));
    WEFT_ASSIGN(const int64_t scores, keys.IntOr("expert_gating_func", 0));
    WEFT_ASSIGN(const double scale, keys.F64Or("expert_weights_scale", 1));
    const bool softmax = scores == 0 || scores == 1;
    if (!softmax || (scale != 0 && scale != 1) || (always && !norm)) {
        return Unsupported(source, "an expert routing that transformers' model does not have");
    }
    WEFT_ASSIGN(const int64_t all, keys.Int("expert_count"));
    WEFT_ASSIGN(config["num_experts_per_tok"], keys.Int("expert_used_count"));
    WEFT_ASSIGN(const int64_t dense, keys.IntOr("feed_forward_length", 0));
    WEFT_ASSIGN(const int64_t columns, keys.IntOr("expert_feed_forward_length", dense));
    config[always ? "num_local_experts" : "num_experts"] = all;
    config[always ? "intermediate_size" : "moe_intermediate_size"] = columns;
    if (always) return {};
    config["norm_topk_prob"] = norm;
    config["decoder_sparse_step"] = 1;
    Json dense_layers = Json::array();
    for (int64_t layer = 0; layer < config["num_hidden_layers"].get<int64_t>(); ++layer) {
        const std::string router = fmt::format("blk.{}.ffn_gate_inp.weight", layer);
        if (source.FindTensor(router) == nullptr) dense_layers.push_back(layer);
    }
    config["mlp_only_layers"] = std::move(dense_layers);
    if (shared) {
        WEFT_ASSIGN(config["shared_expert_intermediate_size"],
                    keys.Int("expert_shared_feed_forward_length"));
    }
    return {};
}

// transformers' name of the activation that the file names.
Result<std::string> HiddenAct(const ModelSource& source, const Keys& keys) {
    constexpr std::pair<std::string_view, std::string_view> kNames[] = {
        {"silu", "silu"},
        {"gelu", "gelu"},
        {"gelu_tanh", "gelu_pytorch_tanh"},
        {"relu", "relu"},
        {"relu_squared", "relu2"}};
    WEFT_ASSIGN(const std::string name, keys.StringOr("hidden_activation", "silu"));
    for (const auto& [ours, theirs] : kNames) {
        if (name == ours) return std::string(theirs);
    }
    return Unsupported(source, "the activation '" + name + "'");
}

std::string WritableTypes() {
    std::string names;
    for (const Family* each : Written()) {
        names += (names.empty() ? "" : ", ") + std::string(each->model_type);
    }
    return names;
}

Result<const Family*> FamilyOfMetadata(const ModelSource& source) {
    WEFT_ASSIGN(const std::string architecture, source.meta().String("general.architecture"));
    const Keys keys(source, architecture);
    WEFT_ASSIGN(const WindowPlan windows, ReadWindows(keys, architecture));
    const Family* family = nullptr;
    for (const Family* one : Written()) {
        if (one->architecture != architecture) continue;
        const bool applies = one->written.experts ? keys.Has("expert_count") : windows.size > 0;
        if (family == nullptr || applies) family = one;
    }
    if (family != nullptr) return family;
    return Unsupported(
        source, fmt::format("architecture '{}' (supported: {})", architecture, WritableTypes()));
}

// Reads the new config.json back as a folder's: every number must equal the file's metadata.
Status CheckReadsBack(const ModelSource& source, const std::string& architecture,
                      const Json& config) {
    WEFT_ASSIGN(const FolderConfig folder, ParseFolderConfig(config.dump(), source.name()));
    const Metadata read(source.name(), folder.entries);
    for (const MetaEntry& entry : source.meta().entries()) {
        const std::string key(entry.key);
        if (!key.starts_with(architecture + ".") || entry.type == MetaType::kString) continue;
        const MetaEntry* other = read.Find(key);
        const bool array = entry.type == MetaType::kArray;
        if (other == nullptr && !key.starts_with(architecture + ".rope.scaling.")) continue;
        // (A factor of 1 has no effect; `finetuned` is not a hyper-parameter.)
        if (other == nullptr && key.ends_with(".finetuned")) continue;
        if (other == nullptr) {
            const auto value = source.meta().F64(key);
            if (value.ok() && *value == 1) continue;
            return Unsupported(source, "'" + key + "' has no place in config.json");
        }
        // (Arrays are checked by ReadWindows. The vocabulary may be smaller than the number of
        // rows.)
        if (array || other->type == MetaType::kArray || key.ends_with(".vocab_size")) continue;
        const auto number = [&](const Metadata& meta, MetaType type) -> Result<double> {
            if (type != MetaType::kBool) return meta.F64(key);
            WEFT_ASSIGN(const bool value, meta.Bool(key));
            return value ? 1.0 : 0.0;
        };
        WEFT_ASSIGN(const double was, number(source.meta(), entry.type));
        WEFT_ASSIGN(const double is, number(read, other->type));
        // (Numbers may change by decimal rounding and, for Gemma's scale, by a square root. An
        // .expert_ key of 0 means the default.)
        const bool usual = was == 0 && key.find(".expert_") != key.npos;
        if (usual || std::abs(was - is) <= 1e-6 * std::abs(was)) continue;
        return Unsupported(source,
                           fmt::format("'{}' is {}, but transformers would read {}", key, was, is));
    }
    return {};
}

Result<Json> ConfigOfMetadata(const ModelSource& source) {
    WEFT_ASSIGN(const Family* family, FamilyOfMetadata(source));
    const std::string architecture(family->architecture);
    const Keys keys(source, architecture);
    WEFT_ASSIGN(const std::string activation, HiddenAct(source, keys));
    Json config = {{"architectures", Json::array({std::string(family->written.name)})},
                   {"model_type", std::string(family->model_type)},
                   {"hidden_act", activation},
                   {"tie_word_embeddings", source.FindTensor("output.weight") == nullptr}};
    WEFT_TRY(AddSizes(source, keys, *family, config));
    WEFT_TRY(AddRope(source, keys, *family, config));
    if (family->rope.windowed_base == "rope_theta") WEFT_TRY(AddRopeByLayer(keys, config));
    WEFT_TRY(AddBiases(source, *family, config));
    WEFT_TRY(AddScales(source, keys, *family, config));
    WEFT_ASSIGN(const WindowPlan windows, ReadWindows(keys, architecture));
    WEFT_TRY(AddWindows(source, windows, *family, config));
    if (keys.Has("expert_count")) WEFT_TRY(AddExpertConfig(source, keys, *family, config));
    for (const auto& [name, key] : {std::pair{"bos_token_id", "tokenizer.ggml.bos_token_id"},
                                    std::pair{"eos_token_id", "tokenizer.ggml.eos_token_id"},
                                    std::pair{"pad_token_id", "tokenizer.ggml.padding_token_id"}}) {
        config[name] = nullptr;  // (else the class would use its default id)
        if (!source.meta().Has(key)) continue;
        WEFT_ASSIGN(config[name], source.meta().Int(key, 0, kMostNumber));
    }
    WEFT_TRY(CheckReadsBack(source, architecture, config));
    return config;
}

// The text model of a multimodal folder, whose other tensors Weft omits.
Result<Json> TextModelConfig(const ModelSource& source, const Config& whole) {
    WEFT_ASSIGN(const Config text, whole.Sub({"text_config"}));
    if (text.json().empty()) {
        for (const char* key : {"vision_config", "audio_config"}) {
            if (!whole.Has(key)) continue;
            return Unsupported(source, fmt::format("config.json has a {}, whose part of the model "
                                                   "Weft does not write",
                                                   key));
        }
        return whole.json();
    }
    WEFT_ASSIGN(const std::string type, text.StringOr({"model_type"}, ""));
    const Family* family = FindWritten(&Family::model_type, type);
    if (family == nullptr) {
        return Unsupported(source, fmt::format("the text model has type '{}' (supported: {})",
                                               Shown(type), WritableTypes()));
    }
    Json config = text.json();
    config["architectures"] = Json::array({std::string(family->written.name)});
    for (const char* key :
         {"tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"}) {
        if (whole.Has(key) && !text.Has(key)) config[key] = whole.json()[key];
    }
    return config;
}

// The folder's own config.json, for plain weights.
Result<Json> ConfigOfFolder(const ModelSource& source) {
    WEFT_ASSIGN(const Config read, Config::Read(source.folder() + "/config.json"));
    WEFT_ASSIGN(Json config, TextModelConfig(source, read));
    for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
        config.erase(key);
    }
    // (A folder's own output matrix may differ from the embedding, whatever this key says.)
    if (source.FindTensor("output.weight") != nullptr) config["tie_word_embeddings"] = false;
    WEFT_ASSIGN(const Config text, Config::Parse(config.dump(), read.where()));
    WEFT_ASSIGN(const std::vector<std::string> classes, text.Strings({"architectures"}));
    WEFT_ASSIGN(const std::string type, text.StringOr({"model_type"}, ""));
    const Family* family = FindWritten(&Family::model_type, type);
    if (classes.empty() && family != nullptr) {
        config["architectures"] = Json::array({std::string(family->written.name)});
    }
    return config;
}

}  // namespace

std::string TypeWord(SafeType type) {
    if (type == SafeType::kF32) return "float32";
    return type == SafeType::kF16 ? "float16" : "bfloat16";
}

Result<std::string> ExportType(const ModelSource& source) {
    if (source.folder().empty()) {
        WEFT_ASSIGN(const Family* family, FamilyOfMetadata(source));
        return std::string(family->model_type);
    }
    WEFT_ASSIGN(const Config read, Config::Read(source.folder() + "/config.json"));
    WEFT_ASSIGN(const Json config, TextModelConfig(source, read));
    WEFT_ASSIGN(const Config text, Config::Parse(config.dump(), read.where()));
    return text.StringOr({"model_type"}, "");
}

Result<Json> ExportConfig(const ModelSource& source, SafeType type) {
    Json config;
    if (source.folder().empty()) {
        WEFT_ASSIGN(config, ConfigOfMetadata(source));
    } else {
        WEFT_ASSIGN(config, ConfigOfFolder(source));
    }
    WEFT_TRY(MakeWhole(source, config));
    config.erase("torch_dtype");
    config["dtype"] = TypeWord(type);
    return config;
}

}  // namespace weft::model_files::hf
