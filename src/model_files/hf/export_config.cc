// config.json for a model: the one of its folder, or made from GGUF metadata.
#include <algorithm>
#include <cmath>

#include "model_files/hf/export.h"
#include "model_files/hf/family.h"

namespace weft::model_files::hf {
namespace {

constexpr int64_t kMostNumber = int64_t{1} << 31, kMostBlocks = 4096;

// What a family's model is called in transformers.
struct Class {
    std::string_view architecture, name;
    bool qkv_bias;     // always there
    bool bias_is_key;  // attention_bias says whether there are biases (those of the output as well)
};
constexpr Class kClasses[] = {{"llama", "LlamaForCausalLM", false, true},
                              {"qwen2", "Qwen2ForCausalLM", true, false},
                              {"qwen3", "Qwen3ForCausalLM", false, true},
                              {"qwen2moe", "Qwen2MoeForCausalLM", true, false},
                              {"qwen3moe", "Qwen3MoeForCausalLM", false, true}};
// A file of llama with experts.
constexpr Class kMixtral = {"llama", "MixtralForCausalLM", false, false};

Error Unsupported(const ModelSource& source, std::string_view what) {
    return MakeError(ErrorCode::kUnsupported,
                     "{}: {}: it can't be written as a Hugging Face folder. A GGUF file can be "
                     "(--save-format gguf)",
                     source.name(), what);
}

std::string TypeWord(SafeType type) {
    if (type == SafeType::kF32) return "float32";
    return type == SafeType::kF16 ? "float16" : "bfloat16";
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
    // As JSON shows it best: the shortest decimal of the float that the file has.
    Result<double> F64Or(const char* key, double fallback) const {
        WEFT_ASSIGN(const double value, meta_.F64Or(prefix_ + key, fallback));
        return std::stod(fmt::format("{}", static_cast<float>(value)));
    }
    Result<bool> BoolOr(const char* key, bool fallback) const {
        return meta_.BoolOr(prefix_ + key, fallback);
    }
    Result<std::string> StringOr(const char* key, std::string fallback) const {
        return meta_.StringOr(prefix_ + key, std::move(fallback));
    }

  private:
    const Metadata& meta_;
    std::string prefix_;
};

Status AddSizes(const ModelSource& source, const Keys& keys, Json& config) {
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
    if (value_dim != head_dim || rotary != head_dim) {
        return Unsupported(source, fmt::format("heads of {} dims, of which {} are rotated, with "
                                               "values of {}",
                                               head_dim, rotary, value_dim));
    }
    WEFT_ASSIGN(config["num_hidden_layers"], keys.Int("block_count", kMostBlocks));
    WEFT_ASSIGN(config["intermediate_size"], keys.Int("feed_forward_length"));
    WEFT_ASSIGN(config["max_position_embeddings"], keys.IntOr("context_length", 4096));
    WEFT_ASSIGN(config["rms_norm_eps"], keys.F64Or("attention.layer_norm_rms_epsilon", 1e-6));
    config["hidden_size"] = embedding->cols;
    config["vocab_size"] = embedding->rows;
    config["num_attention_heads"] = heads;
    config["num_key_value_heads"] = kv_heads;
    config["head_dim"] = head_dim;
    return {};
}

// The parameters of Llama 3's scaling, of which a GGUF file has only the result. All released
// models have these but for the factor, which is the largest divisor.
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
        // (Both are computed in double or float and rounded: a relative 2^-21 is some rounding.)
        if (!(std::abs(made[i] / factors[i] - 1) <= 4.8e-7f)) {
            return Unsupported(source, "rope_freqs.weight is not of Llama 3's scaling as released");
        }
    }
    return scaling;
}

Status AddRope(const ModelSource& source, const Keys& keys, Json& config) {
    WEFT_ASSIGN(const double theta, keys.F64Or("rope.freq_base", 10000));
    config["rope_theta"] = theta;
    if (keys.Has("rope.scaling.dynamic_factor")) {
        WEFT_ASSIGN(const double dynamic, keys.F64Or("rope.scaling.dynamic_factor", 1));
        config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", dynamic}};
        return {};
    }
    WEFT_ASSIGN(const std::string type, keys.StringOr("rope.scaling.type", "none"));
    WEFT_ASSIGN(const double factor, keys.F64Or("rope.scaling.factor", 1));
    if (const TensorInfo* factors = source.FindTensor("rope_freqs.weight")) {
        WEFT_ASSIGN(config["rope_scaling"], Llama3Scaling(source, *factors, theta));
        return {};
    }
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

Status AddBiases(const ModelSource& source, const Class& model, Json& config) {
    const bool qkv = source.FindTensor("blk.0.attn_q.bias") != nullptr;
    const bool out = source.FindTensor("blk.0.attn_output.bias") != nullptr;
    const bool fits = model.bias_is_key ? qkv == out : qkv == model.qkv_bias && !out;
    if (!fits) return Unsupported(source, "biases of some matrices of attention only");
    if (model.bias_is_key) config["attention_bias"] = qkv;
    if (source.FindTensor("blk.0.ffn_up.bias") != nullptr) {
        return Unsupported(source, "biases of the MLP");
    }
    return {};
}

std::string ExpertsType(const std::string& architecture) {
    if (architecture == "llama") return "mixtral";
    return architecture == "qwen2moe" ? "qwen2_moe" : "qwen3_moe";
}

// Mixtral renormalises the weights of the chosen, and Qwen's models say whether they do.
Status AddExpertConfig(const ModelSource& source, const Keys& keys, const std::string& architecture,
                       Json& config) {
    const bool mixtral = architecture == "llama";
    WEFT_ASSIGN(const bool norm, keys.BoolOr("expert_weights_norm", architecture != "qwen2moe"));
    WEFT_ASSIGN(const int64_t scores, keys.IntOr("expert_gating_func", 0));
    WEFT_ASSIGN(const double scale, keys.F64Or("expert_weights_scale", 1));
    const bool softmax = scores == 0 || scores == 1;
    if (!softmax || (scale != 0 && scale != 1) || (mixtral && !norm)) {
        return Unsupported(source, "experts that are chosen otherwise than in transformers' model");
    }
    WEFT_ASSIGN(const int64_t all, keys.Int("expert_count"));
    WEFT_ASSIGN(config["num_experts_per_tok"], keys.Int("expert_used_count"));
    WEFT_ASSIGN(const int64_t dense, keys.IntOr("feed_forward_length", 0));
    WEFT_ASSIGN(const int64_t columns, keys.IntOr("expert_feed_forward_length", dense));
    config[mixtral ? "num_local_experts" : "num_experts"] = all;
    config[mixtral ? "intermediate_size" : "moe_intermediate_size"] = columns;
    if (mixtral) return {};
    config["norm_topk_prob"] = norm;
    config["decoder_sparse_step"] = 1;
    Json dense_layers = Json::array();
    for (int64_t layer = 0; layer < config["num_hidden_layers"].get<int64_t>(); ++layer) {
        const std::string router = fmt::format("blk.{}.ffn_gate_inp.weight", layer);
        if (source.FindTensor(router) == nullptr) dense_layers.push_back(layer);
    }
    config["mlp_only_layers"] = std::move(dense_layers);
    if (architecture == "qwen2moe") {
        WEFT_ASSIGN(config["shared_expert_intermediate_size"],
                    keys.Int("expert_shared_feed_forward_length"));
    }
    return {};
}

Result<Json> ConfigOfMetadata(const ModelSource& source) {
    WEFT_ASSIGN(const std::string architecture, source.meta().String("general.architecture"));
    const auto* model = std::ranges::find(kClasses, architecture, &Class::architecture);
    if (model == std::end(kClasses)) {
        return Unsupported(source, "architecture '" + architecture +
                                       "' (llama, qwen2, qwen3 and their models with experts can "
                                       "be written)");
    }
    const Keys keys(source, architecture);
    if (keys.Has("attention.sliding_window")) return Unsupported(source, "it has windows");
    const bool experts = keys.Has("expert_count");
    if (experts && architecture == "llama") model = &kMixtral;
    Json config = {{"architectures", Json::array({std::string(model->name)})},
                   {"model_type", experts ? ExpertsType(architecture) : architecture},
                   {"hidden_act", "silu"},
                   {"tie_word_embeddings", source.FindTensor("output.weight") == nullptr}};
    WEFT_TRY(AddSizes(source, keys, config));
    WEFT_TRY(AddRope(source, keys, config));
    WEFT_TRY(AddBiases(source, *model, config));
    if (experts) WEFT_TRY(AddExpertConfig(source, keys, architecture, config));
    for (const char* name : {"bos", "eos"}) {
        const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
        if (!source.meta().Has(key)) continue;
        WEFT_ASSIGN(config[std::string(name) + "_token_id"],
                    source.meta().Int(key, 0, kMostNumber));
    }
    return config;
}

}  // namespace

Result<Json> ExportConfig(const ModelSource& source, SafeType type) {
    Json config;
    if (source.folder().empty()) {
        WEFT_ASSIGN(config, ConfigOfMetadata(source));
    } else {
        WEFT_ASSIGN(const Config read, Config::Read(source.folder() + "/config.json"));
        config = read.json();
        config.erase("quantization_config");
    }
    config.erase("torch_dtype");
    config["dtype"] = TypeWord(type);
    return config;
}

}  // namespace weft::model_files::hf
