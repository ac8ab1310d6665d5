// Laguna (Poolside 2026): query and key heads are normed, a gate computed from the layer's input
// multiplies each head's output, and windowed layers have their own heads and RoPE.
#include "families/family.h"
#include "model_files/hf/mixed_layers.h"

namespace weft::families::laguna {

Result<Config> LagunaAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("moe_apply_router_weight_on_input", false));
    WEFT_ASSIGN(const double cap, config.F64Or({"moe_router_logit_softcapping"}, 0.0));
    if (cap != 0) return config.Corrupt("moe_router_logit_softcapping", "0");
    WEFT_ASSIGN(const double scale, config.NeedF64({"moe_routed_scaling_factor"}));
    WEFT_ASSIGN(const Config listed, WithDenseLayers(config));
    WEFT_ASSIGN(const std::vector<bool> dense, DenseLayers(listed));
    const auto leading = std::ranges::find(dense, false) - dense.begin();
    WEFT_ASSIGN(std::vector<int64_t> heads, config.Ints({"num_attention_heads_per_layer"}));
    WEFT_ASSIGN(heads, EachLayers(config, "num_attention_heads_per_layer", std::move(heads)));
    WEFT_ASSIGN(const std::vector<std::string> types,
                TypesOf(config, [](int64_t) { return false; }));
    Json over = {{"norm_topk_prob", true},
                 {"routed_scaling_factor", scale},
                 {"layer_types", types},
                 {"first_k_dense_replace", leading},
                 {"gates_columns", config.json().value("gating", Json()) == "per-element"}};
    if (!heads.empty()) over["num_attention_heads"] = heads;
    return listed.With(over);
}

Status LagunaMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteMixed(config, meta, true));
    return WriteExperts(config, meta, "moe_intermediate_size", "sigmoid");
}

constexpr Rule kLagunaRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm},
    {"attn_gate", "self_attn.g_proj", Form::kLinear},
    {"exp_probs_b.bias", "mlp.experts.e_score_correction_bias", Form::kVector, false},
    {"ffn_%_shexp", "mlp.shared_expert.%_proj", Form::kLinear, false},
};

constexpr Family kFolders[] = {
    {.model_type = "laguna",
     .architecture = "laguna",
     .rules = {kLagunaRules, kAttentionRules, kQkNormRules, kMoeRules, kSharedExpertsRules},
     .meta = LagunaMeta,
     .adjust = LagunaAdjust,
     .defaults = R"({"max_position_embeddings": 131072, "head_dim": 128, "num_key_value_heads": 8,
                     "sliding_window": 512, "moe_intermediate_size": 512, "num_experts": 256,
                     "num_experts_per_tok": 8, "shared_expert_intermediate_size": 512,
                     "moe_routed_scaling_factor": 1.0,
                     "rope_parameters": {
                         "full_attention": {"rope_type": "default", "rope_theta": 500000.0,
                                            "partial_rotary_factor": 0.5},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})",
     .rope = {.by_layer_type = true, .partial = true, .windowed_share = true},
     .more_tensors = "attn_gate.columns?gates_columns"},
};

ValueId BuildLaguna(Builder& b, ValueId x) {
    return GatedHeadLayers(b, x, RowGate::kSoftplus);
}

constexpr Architecture kArchitectures[] = {
    {.family = {"laguna", "Laguna",
                "gates by head or column, heads and RoPE that differ by layer, YaRN",
                "laguna, lagunaWhole"},
     .build = BuildLaguna,
     .experts = true,
     .traits = {.window_pattern = 4,
                .first_sees_all = true,
                .plain_windows = true,
                .gate_score = GateScore::kSigmoid}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::laguna
