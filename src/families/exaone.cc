// EXAONE 3 and 3.5 (LG AI Research 2024): Llama's block with RoPE over halves. EXAONE 4 and
// K-EXAONE (2025): normed query and key heads; in models with windows, only windowed layers have
// RoPE. EXAONE 4 norms the outputs of attention and MLP, K-EXAONE their inputs.
#include "families/family.h"

namespace weft::families::exaone {

Result<Config> ExaoneAdjust(const Config& config) {
    return Renamed(config, {{"num_hidden_layers", "num_layers"},
                            {"hidden_act", "activation_function"},
                            {"rms_norm_eps", "layer_norm_epsilon"}});
}

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

bool AllButEachFourth(int64_t layer) {
    return (layer + 1) % 4 != 0;
}

Status Exaone4Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, kMostContext, 0));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    // With a window, only layers that have it rotate; without one, all layers do.
    if (window > 0 && std::ranges::find(types, "sliding_attention") == types.end()) {
        return config.Corrupt("sliding_window", "null, because no layer has sliding_attention");
    }
    return WriteWindow(config, meta, window, AllButEachFourth);
}

Result<Config> Exaone4Adjust(const Config& config) {
    return WithLayerTypes(config, 4);
}

// Renames its shared experts to the usual key.
Result<Config> ExaoneMoeAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t shared, config.NeedInt({"num_shared_experts"}, 0, 64));
    const Json over = {{"n_shared_experts", shared}};
    return WithLayerTypes(config.With(over), 4);
}

constexpr Rule kExaoneMoeRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm},
    {"exp_probs_b.bias", "mlp.e_score_correction_bias", Form::kVector, false},
};
constexpr DraftHeadNames kExaoneDraftHead = {
    "fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", true, "mtp.", true, true};

constexpr Family kFolders[] = {
    {.model_type = "exaone",
     .architecture = "exaone",
     .rules = {kExaoneRules},
     .adjust = ExaoneAdjust,
     .defaults = R"({"max_position_embeddings": 2048, "layer_norm_epsilon": 1e-5})",
     .embedding = "wte",
     .final_norm = "ln_f",
     .layers = "h",
     .path = "transformer"},
    {.model_type = "exaone4",
     .architecture = "exaone4",
     .rules = {kPostNormRules, kAttentionRules, kQkNormRules, kMlpRules},
     .meta = Exaone4Meta,
     .adjust = Exaone4Adjust,
     .defaults = R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                     "sliding_window": 4096})"},
    {.model_type = "exaone_moe",
     .architecture = "exaone-moe",
     .rules = {kExaoneMoeRules, kAttentionRules, kQkNormRules, kMoeRules, kSharedExpertsRules},
     .meta = Exaone4Meta,
     .gating = "sigmoid",
     .routing = kGroupRouting,
     .adjust = ExaoneMoeAdjust,
     .defaults = R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                     "sliding_window": 4096, "first_k_dense_replace": 1, "num_experts": 64,
                     "num_experts_per_tok": 8, "num_shared_experts": 1, "norm_topk_prob": true,
                     "moe_intermediate_size": 1024, "routed_scaling_factor": 2.5, "n_group": 1,
                     "topk_group": 1})",
     .draft_head = &kExaoneDraftHead},
};

ValueId NormedHeads(Builder& b, ValueId h) {
    const int64_t head_dim = b.hyper().head_dim;
    ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
    ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
    const ValueId v = b.ToKvHeads(h, "attn_v", false);
    if (b.hyper().windowed.empty() || b.IsWindowed()) {
        q = b.Rope(q, false);
        k = b.Rope(k, false);
    }
    return b.FromHeads(b.Attention(q, k, v), "attn_output");
}

ValueId BuildExaone4(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        x = b.Add(x, b.Norm(NormedHeads(b, x), "post_attention_norm", hidden));
        x = b.Add(x, b.Norm(b.Mlp(x), "post_ffw_norm", hidden));
    }
    return x;
}

ValueId BuildExaoneMoe(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) { return NormedHeads(b, h); });
}

constexpr Architecture kArchitectures[] = {
    {.family = {"exaone", "EXAONE 3, 3.5", "as llama", "exaone"}, .build = RotatedLayers},
    {.family = {"exaone-moe", "K-EXAONE",
                "normed heads, windows, layers without positions, leading dense layers",
                "exaoneMoe"},
     .build = BuildExaoneMoe,
     .experts = true,
     .traits = {.draft_head = true, .window_pattern = 4, .gate_score = GateScore::kSigmoid}},
    {.family = {"exaone4", "EXAONE 4", "normed heads, windows, layers without positions",
                "exaone4, exaone4Whole"},
     .build = BuildExaone4,
     .traits = {.window_pattern = 4}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::exaone
