// config.json for a model: the one of its folder, or made from GGUF metadata.
#include <algorithm>
#include <cmath>

#include "formats/hf/export.h"
#include "formats/hf/family.h"

namespace weft::formats::hf {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;

// What a family's model is called in transformers.
struct Class {
    std::string_view architecture, name;
    bool qkv_bias;     // always there
    bool bias_is_key;  // attention_bias says whether there are biases (those of the output as well)
};
constexpr Class kClasses[] = {{"llama", "LlamaForCausalLM", false, true},
                              {"qwen2", "Qwen2ForCausalLM", true, false},
                              {"qwen3", "Qwen3ForCausalLM", false, true}};

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
    Result<int64_t> Int(const char* key) const { return meta_.Int(prefix_ + key, 1, kMost); }
    Result<int64_t> IntOr(const char* key, int64_t fallback) const {
        return meta_.IntOr(prefix_ + key, 0, kMost, fallback);
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
    WEFT_ASSIGN(const int64_t value_dim, keys.IntOr("attention.value_length", head_dim));
    WEFT_ASSIGN(const int64_t rotary, keys.IntOr("rope.dimension_count", head_dim));
    if (value_dim != head_dim || rotary != head_dim) {
        return Unsupported(source, fmt::format("heads of {} dims, of which {} are rotated, with "
                                               "values of {}",
                                               head_dim, rotary, value_dim));
    }
    WEFT_ASSIGN(config["num_hidden_layers"], keys.Int("block_count"));
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
    const Json whole = {{"rope_theta", theta}, {"rope_scaling", scaling}};
    WEFT_ASSIGN(const Config config, Config::Parse(whole.dump(), source.name()));
    WEFT_ASSIGN(const RopeConfig rope, ReadRope(config));
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

Result<Json> ConfigOfMetadata(const ModelSource& source) {
    WEFT_ASSIGN(const std::string architecture, source.meta().String("general.architecture"));
    const auto* model = std::ranges::find(kClasses, architecture, &Class::architecture);
    if (model == std::end(kClasses)) {
        return Unsupported(source, "architecture '" + architecture +
                                       "' (llama, qwen2 and qwen3 can "
                                       "be written)");
    }
    const Keys keys(source, architecture);
    if (keys.Has("attention.sliding_window") || keys.Has("expert_count")) {
        return Unsupported(source, "it has windows or experts");
    }
    Json config = {{"architectures", Json::array({std::string(model->name)})},
                   {"model_type", architecture},
                   {"hidden_act", "silu"},
                   {"tie_word_embeddings", source.FindTensor("output.weight") == nullptr}};
    WEFT_TRY(AddSizes(source, keys, config));
    WEFT_TRY(AddRope(source, keys, config));
    WEFT_TRY(AddBiases(source, *model, config));
    for (const char* name : {"bos", "eos"}) {
        const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
        if (!source.meta().Has(key)) continue;
        WEFT_ASSIGN(config[std::string(name) + "_token_id"], source.meta().Int(key, 0, kMost));
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

}  // namespace weft::formats::hf
