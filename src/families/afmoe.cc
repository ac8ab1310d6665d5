// Trinity (Arcee 2025): norms before and after attention and MLP, normed heads, an output gate per
// column of attention, and RoPE only in windowed layers.
#include "families/family.h"

namespace weft::families::afmoe {

Result<Config> AfmoeAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("route_norm", true));
    WEFT_ASSIGN(const int64_t step,
                config.IntOr({"global_attn_every_n_layers"}, 1, kMostLayers, 4));
    WEFT_ASSIGN(const int64_t dense, config.NeedInt({"num_dense_layers"}, 0, kMostLayers));
    WEFT_ASSIGN(const int64_t shared, config.NeedInt({"num_shared_experts"}, 0, 64));
    WEFT_ASSIGN(const double scale, config.NeedF64({"route_scale"}));
    const Json over = {{"sliding_window_pattern", step},
                       {"first_k_dense_replace", dense},
                       {"n_shared_experts", shared},
                       {"norm_topk_prob", true},
                       {"routed_scaling_factor", scale}};
    return WithLayerTypes(config.With(over), 4);
}

// GGUF files do not state whether the embedding is multiplied by the root of its columns: Trinity's
// is.
Result<EndScales> AfmoeEnds(const Config& config) {
    WEFT_ASSIGN(const bool scales, config.BoolOr({"mup_enabled"}, false));
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, 1 << 20));
    return EndScales{scales ? 1.0 : 1 / std::sqrt(static_cast<double>(hidden)), 1.0};
}

Status AfmoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, kMostContext, 0));
    WEFT_TRY(WriteWindow(config, meta, window, nullptr));
    return WriteExperts(config, meta, "moe_intermediate_size", "sigmoid");
}

constexpr Rule kAfmoeRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"ffn_norm", "pre_mlp_layernorm", Form::kNorm},
    {"post_ffw_norm", "post_mlp_layernorm", Form::kNorm},
    {"attn_gate", "self_attn.gate_proj", Form::kLinear},
    {"ffn_gate_inp", "mlp.router.gate", Form::kRouter, false},
    {"exp_probs_b.bias", "mlp.expert_bias", Form::kVector, false},
};

constexpr Family kFolders[] = {
    {.model_type = "afmoe",
     .architecture = "afmoe",
     .rules = {kAfmoeRules, kAttentionRules, kQkNormRules, kMoeRules, kSharedExpertsRules},
     .meta = AfmoeMeta,
     .adjust = AfmoeAdjust,
     .defaults = R"({"max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "head_dim": 128,
                     "mup_enabled": false, "num_dense_layers": 1, "num_experts": 64,
                     "num_experts_per_tok": 6, "num_shared_experts": 2, "route_scale": 1.0,
                     "moe_intermediate_size": 1408, "sliding_window": 1024})",
     .ends = AfmoeEnds,
     .more_tensors = "attn_gate.columns"},
};

ValueId BuildAfmoe(Builder& b, ValueId x) {
    return GatedNormLayers(b, x, false, b.hyper().rms_eps);
}

constexpr Architecture kArchitectures[] = {
    {.family = {"afmoe", "Trinity (Arcee)",
                "gates by column, norms on both sides, windows, leading dense layers", "trinity"},
     .build = BuildAfmoe,
     .experts = true,
     .traits = {.window_pattern = 4, .embeds_by_root = true, .gate_score = GateScore::kSigmoid}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::afmoe
