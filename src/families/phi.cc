// Phi-1 to 2 (Gunasekar et al. 2023): GPT's layers with partial RoPE, and attention beside the MLP.
// Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024), dense: pre-norm, Q, K and V in one tensor, the
// MLP's gate and up in another, RoPE over the halves of a part of each head, LongRoPE for long
// contexts. Phi-3.5-MoE has separate tensors, LayerNorms with biases and experts.
#include "families/family.h"

namespace weft::families::phi {

Status PhiLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    return assembly.AddHeadNorms(layer, prefix + "self_attn.");
}

constexpr Rule kPhiRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"attn_q", "self_attn.q_proj", Form::kQuery},
    {"attn_k", "self_attn.k_proj", Form::kKey},
    {"attn_v", "self_attn.v_proj", Form::kLinear},
    {"attn_output", "self_attn.dense", Form::kLinear},
    {"ffn_up", "mlp.fc1", Form::kLinear},
    {"ffn_down", "mlp.fc2", Form::kLinear},
};

Status Phi3Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteGated(config, meta));
    return WindowEverywhere(config, meta);
}

constexpr Rule kPhi3Rules[] = {
    {"attn_qkv", "self_attn.qkv_proj", Form::kLinear},
    {"attn_output", "self_attn.o_proj", Form::kLinear},
    {"ffn_up", "mlp.gate_up_proj", Form::kLinear},  // gate before up, as in GGUF
    {"ffn_down", "mlp.down_proj", Form::kLinear},
};

// The norms are LayerNorms, although their epsilon has the name of RMS norms'. GGUF has no key for
// the routing's jitter.
Status PhimoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const double jitter, config.F64Or({"router_jitter_noise"}, 0.01));
    if (jitter != 0.01) return config.Corrupt("router_jitter_noise", "0.01");
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteExperts(config, meta, "intermediate_size", "softmax"));
    return WindowEverywhere(config, meta);
}

// Moves the magnitude of LongRoPE, which must be the same for short and long contexts, to the usual
// key.
Result<Config> PhimoeAdjust(const Config& config) {
    const std::string_view key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
    WEFT_ASSIGN(const Config rope, config.Sub({key}));
    if (!rope.Has("short_mscale")) return config;
    WEFT_ASSIGN(const double near, rope.NeedF64({"short_mscale"}));
    WEFT_ASSIGN(const double far, rope.NeedF64({"long_mscale"}));
    if (near != far) return rope.Corrupt("long_mscale", "short_mscale");
    Json own = rope.json();
    for (const char* old : {"short_mscale", "long_mscale"}) own.erase(old);
    own["attention_factor"] = near;
    return config.With(Json{{std::string(key), std::move(own)}});
}

constexpr Family kFolders[] = {
    {.model_type = "phi",
     .architecture = "phi2",
     .rules = {kPhiRules},
     .meta = WriteUngated,
     .layer = PhiLayer,
     .adjust = PlainKeys,
     .defaults = R"({"max_position_embeddings": 2048, "hidden_act": "gelu_new",
                     "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5})",
     .rope = {.partial = true},
     .final_norm = "final_layernorm",
     .layer_norm = "layer_norm_eps",
     .more_tensors = "attn_norm.bias output_norm.bias attn_q.bias attn_k.bias attn_v.bias "
                     "attn_output.bias ffn_up.bias ffn_down.bias output.bias "
                     "attn_q_norm.weight?qk_layernorm attn_q_norm.bias?qk_layernorm "
                     "attn_k_norm.weight?qk_layernorm attn_k_norm.bias?qk_layernorm"},
    {.model_type = "phi3",
     .architecture = "phi3",
     .rules = {kPreNormRules, kPhi3Rules},
     .meta = Phi3Meta,
     .defaults = R"({"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096})",
     .rope = {.partial = true, .only_longrope = true},
     .written = {.name = "Phi3ForCausalLM",
                 .attention = ClassBias::kNever,
                 .windows = ClassWindows::kAll}},
    {.model_type = "phimoe",
     .architecture = "phimoe",
     .rules = {kPreNormRules, kAttentionRules, kBlockSparseMoeRules},
     .meta = PhimoeMeta,
     .adjust = PhimoeAdjust,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "rope_theta": 1000000.0, "num_key_value_heads": 8, "num_local_experts": 16,
                     "num_experts_per_tok": 2, "sliding_window": null})",
     .rope = {.only_longrope = true},
     .more_tensors =
         "attn_norm.bias ffn_norm.bias output_norm.bias attn_output.bias?attention_bias "
         "output.bias?lm_head_bias"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"phi2", "Phi-1, 1.5, 2",
                "LayerNorm with biases, partial RoPE, attention beside the MLP, MLPs of GELU "
                "without a gate; normed heads",
                "phi, phiNormed"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer, .ungated = Ungated::kGeluTanh}},
    {.family = {"phi3", "Phi-3, Phi-3.5-mini, Phi-4", "fused tensors, LongRoPE, partial RoPE",
                "phi3Short, phi3Long"},
     .build = RotatedLayers},
    {.family = {"phimoe", "Phi-3.5-MoE",
                "LayerNorm with biases, LongRoPE, sparse mixing of experts", "phimoe"},
     .build = RotatedLayers,
     .experts = true,
     .traits = {.norms = Norms::kLayer,
                .gate_score = GateScore::kSparseMixer,
                .renormalises = false}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::phi
