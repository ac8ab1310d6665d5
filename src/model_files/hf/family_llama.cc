// Llama and similar dense models.
#include <algorithm>

#include "model_files/hf/family.h"

namespace weft::model_files::hf {

namespace {

Status MistralMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteGated(config, meta));
    return WindowEverywhere(config, meta);
}

Status Ministral3Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(MistralMeta(config, meta));
    return WriteTemperature(config, meta);
}

// As Mistral, with some windowed layers.
Status MinistralMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, kMostContext, 0));
    if (window == 0 && !config.Has("layer_types")) return {};
    return WriteWindow(config, meta, window, [](int64_t) { return true; });
}

Status GraniteMoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteScales(config, meta));
    return WriteExperts(config, meta, "intermediate_size", "softmax");
}

Status OlmoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteClamp(config, meta));
    return WriteExperts(config, meta, "intermediate_size", "softmax");
}

// GGUF's smollm3 has no RoPE in every fourth layer; rope.layers, Weft's own key, changes that.
Status SmolLm3Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const std::vector<int64_t> given, config.Ints({"no_rope_layers"}));
    WEFT_ASSIGN(const int64_t step, config.IntOr({"no_rope_layer_interval"}, 1, 4096, 4));
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    std::vector<bool> rotated;
    bool usual = true;
    for (int64_t layer = 0; layer < layers; ++layer) {
        const auto at = static_cast<size_t>(layer);
        rotated.push_back(at < given.size() ? given[at] != 0 : (layer + 1) % step != 0);
        usual = usual && rotated.back() == ((layer + 1) % 4 != 0);
    }
    if (!usual) meta.Bools("rope.layers", rotated);
    // (In transformers, the types alone make windows; by default, those of layers without RoPE.)
    WEFT_ASSIGN(const bool windows, config.BoolOr({"use_sliding_window"}, false));
    if (!config.Has("sliding_window") || !(windows || config.Has("layer_types"))) return {};
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, kMostContext));
    if (config.Has("layer_types")) {
        return WriteWindow(config, meta, window, [](int64_t) { return true; });
    }
    Json types = Json::array();
    for (const bool rotates : rotated) {
        types.push_back(rotates ? "full_attention" : "sliding_attention");
    }
    return WriteWindow(config.With(Json{{"layer_types", types}}), meta, window,
                       [](int64_t) { return true; });
}

// Three of four layers are windowed; their RoPE is not scaled.
Status Olmo3Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, kMostContext, 0));
    WEFT_TRY(WriteWindow(config, meta, window, [](int64_t layer) { return (layer + 1) % 4 != 0; }));
    return WriteWindowedBase(config, meta);
}

// Layers without a list of types: the first of each four has no window.
Status CwmMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, kMostContext, 0));
    return WriteWindow(config, meta, window, [](int64_t layer) { return layer % 4 != 0; });
}

// Logits are multiplied by their factor, not divided by it as in Granite.
Status HyperClovaMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const double factor, config.NeedF64({"logits_scaling"}));
    if (!(factor > 0)) return config.Corrupt("logits_scaling", "a number above 0");
    return WriteScales(config.With(Json{{"logits_scaling", 1 / factor}}), meta);
}

Result<Config> ExaoneAdjust(const Config& config) {
    return Renamed(config, {{"num_hidden_layers", "num_layers"},
                            {"hidden_act", "activation_function"},
                            {"rms_norm_eps", "layer_norm_epsilon"}});
}

constexpr Rule kHyperClovaRules[] = {
    {"post_attention_norm", "post_norm1", Form::kNorm, false},
    {"post_ffw_norm", "post_norm2", Form::kNorm, false},
};
constexpr Rule kExaoneRules[] = {
    {"attn_norm", "ln_1", Form::kNorm},
    {"ffn_norm", "ln_2", Form::kNorm},
    {"attn_q", "attn.attention.q_proj", Form::kQuery},
    {"attn_k", "attn.attention.k_proj", Form::kKey},
    {"attn_v", "attn.attention.v_proj", Form::kLinear},
    {"attn_output", "attn.attention.out_proj", Form::kLinear},
    {"ffn_gate", "mlp.c_fc_0", Form::kLinear},
    {"ffn_up", "mlp.c_fc_1", Form::kLinear},
    {"ffn_down", "mlp.c_proj", Form::kLinear},
};
constexpr Rule kPhi3Rules[] = {
    {"attn_qkv", "self_attn.qkv_proj", Form::kLinear},
    {"attn_output", "self_attn.o_proj", Form::kLinear},
    {"ffn_up", "mlp.gate_up_proj", Form::kLinear},  // gate before up, as in GGUF
    {"ffn_down", "mlp.down_proj", Form::kLinear},
};
constexpr Rule kSeedNormRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
};

constexpr Rule kGraniteMoeRules[] = {
    {"ffn_gate_inp", "block_sparse_moe.router.layer", Form::kRouter},
};

constexpr Family kLlamaFamilies[] = {
    {.model_type = "llama",
     .also = "internlm3 iquestcoder",
     .architecture = "llama",
     .meta = WriteGated,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 2048})"},
    {.model_type = "mistral",
     .architecture = "llama",
     .meta = MistralMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 131072, "num_key_value_heads": 8,
                     "sliding_window": 4096})"},
    {.model_type = "ministral",
     .architecture = "llama",
     .meta = MinistralMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 131072, "num_key_value_heads": 8,
                     "sliding_window": 4096})"},
    {.model_type = "ministral3",
     .architecture = "mistral3",
     .meta = Ministral3Meta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 262144, "rms_norm_eps": 1e-5, "head_dim": 128,
                     "num_key_value_heads": 8,
                     "rope_parameters": {
                         "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
                         "original_max_position_embeddings": 16384, "beta_fast": 32.0,
                         "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0,
                         "llama_4_scaling_beta": 0.1}})",
     .rope = {.temperature = true, .log_multiplier = 1}},
    {.model_type = "cwm",
     .architecture = "llama",
     .meta = CwmMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "num_key_value_heads": 8, "head_dim": 128, "sliding_window": 8192,
                     "rope_parameters": {
                         "rope_type": "llama3", "rope_theta": 1000000.0, "factor": 16.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192}})"},
    {.model_type = "helium",
     .architecture = "llama",
     .defaults = R"({"rms_norm_eps": 1e-8, "rope_theta": 100000.0, "head_dim": 128})"},
    {.model_type = "exaone",
     .architecture = "exaone",
     .rules = {kExaoneRules},
     .adjust = ExaoneAdjust,
     .defaults = R"({"max_position_embeddings": 2048, "layer_norm_epsilon": 1e-5})",
     .embedding = "wte",
     .final_norm = "ln_f",
     .layers = "h",
     .path = "transformer"},
    {.model_type = "hyperclovax",
     .architecture = "hyperclovax",
     .rules = {kPreNormRules, kAttentionRules, kMlpRules, kHyperClovaRules},
     .meta = HyperClovaMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 2048, "attention_multiplier": 0.08838834764831845,
                     "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
                     "logits_scaling": 1.0, "use_post_norm": true})",
     .more_tensors = "post_attention_norm.weight?use_post_norm "
                     "post_ffw_norm.weight?use_post_norm"},
    {.model_type = "granite",
     .architecture = "granite",
     .meta = WriteScales,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 2048, "attention_multiplier": 1.0,
                     "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
                     "logits_scaling": 1.0})"},
    {.model_type = "seed_oss",
     .architecture = "seed_oss",
     .rules = {kSeedNormRules, kAttentionRules, kMlpRules},
     .defaults = R"({"max_position_embeddings": 524288, "head_dim": 128,
                     "num_key_value_heads": 8})",
     .more_tensors = "attn_q.bias attn_k.bias attn_v.bias attn_output.bias?attention_out_bias"},
    {.model_type = "granitemoe",
     .architecture = "granitemoe",
     .rules = {kPreNormRules, kAttentionRules, kGraniteMoeRules},
     .meta = GraniteMoeMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 2048, "attention_multiplier": 1.0,
                     "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
                     "logits_scaling": 1.0, "num_local_experts": 8, "num_experts_per_tok": 2,
                     "norm_topk_prob": true})"},
    {.model_type = "olmoe",
     .architecture = "olmoe",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kMoeRules},
     .meta = OlmoeMeta,
     .routing = "norm_topk_prob",
     .defaults = R"({"rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8})"},
    {.model_type = "flex_olmo",
     .architecture = "flex-olmo",
     .rules = {kPostNormRules, kAttentionRules, kQkNormRules, kMoeRules},
     .meta = OlmoeMeta,
     .routing = "norm_topk_prob",
     .defaults = R"({"num_experts": 7, "num_experts_per_tok": 5, "rope_theta": 500000.0})"},
    {.model_type = "smollm3",
     .architecture = "smollm3",
     .meta = SmolLm3Meta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 32768, "rope_theta": 2000000.0,
                     "tie_word_embeddings": true})"},
    {.model_type = "olmo2",
     .architecture = "olmo2",
     .rules = {kPostNormRules, kAttentionRules, kQkNormRules, kMlpRules},
     .defaults = R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-5})",
     .rope = {.whole_magnitude = true}},
    {.model_type = "olmo3",
     .architecture = "olmo2",
     .rules = {kPostNormRules, kAttentionRules, kQkNormRules, kMlpRules},
     .meta = Olmo3Meta,
     .defaults = R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                     "rope_theta": 500000.0, "sliding_window": 4096})",
     .rope = {.by_layer_type = true, .windowed_base = "rope_theta", .whole_magnitude = true}},
    {.model_type = "phi3",
     .architecture = "phi3",
     .rules = {kPreNormRules, kPhi3Rules},
     .meta = MistralMeta,
     .defaults = R"({"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096})",
     .rope = {.partial = true, .only_longrope = true}},
};

}  // namespace

extern const std::span<const Family> kLlamaModels = kLlamaFamilies;

}  // namespace weft::model_files::hf
