// Command R (2024), Command A and Cohere's MoE models (2025): attention and MLP read the same
// LayerNorm of x, and both are added to x. Command R has RoPE in all layers; the others only in
// windowed layers and in leading layers without experts.
#include "families/family.h"

namespace weft::families::cohere {

Status Cohere2Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const double scale, config.NeedF64({"logit_scale"}));
    meta.F32("logit_scale", scale);
    WEFT_ASSIGN(const double rotary, config.F64Or({"rotary_pct"}, 1.0));
    if (rotary != 1) return config.Corrupt("rotary_pct", "1");
    WEFT_TRY(config.MustBe("use_parallel_block", true));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, kMostContext, 0));
    return WriteWindow(config, meta, window, [](int64_t layer) { return (layer + 1) % 4 != 0; });
}

Status CohereMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const double scale, config.NeedF64({"logit_scale"}));
    meta.F32("logit_scale", scale);
    return {};
}

Result<Config> Cohere2Adjust(const Config& config) {
    WEFT_ASSIGN(const Config adjusted, NoRmsNorms(config));
    return WithLayerTypes(adjusted, 4);
}

// Number of leading `dense` layers; other layers must not be dense.
Result<int64_t> LeadingDense(const Config& config) {
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"mlp_layer_types"}));
    if (types.empty()) return config.IntOr({"first_k_dense_replace"}, 0, kMostLayers, 0);
    const auto sparse = std::ranges::find_if(types, [](const auto& t) { return t != "dense"; });
    if (std::find(sparse, types.end(), "dense") == types.end()) return sparse - types.begin();
    return config.Corrupt("mlp_layer_types", "layers of type 'dense' before all others");
}

Result<Config> Cohere2MoeAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t dense, LeadingDense(config));
    WEFT_ASSIGN(const int64_t ffn, config.NeedInt({"intermediate_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const int64_t dense_ffn,
                config.IntOr({"prefix_dense_intermediate_size"}, 1, 1 << 20, ffn));
    WEFT_ASSIGN(const std::string function, config.StringOr({"expert_selection_fn"}, "softmax"));
    WEFT_ASSIGN(const int64_t shared, config.IntOr({"num_shared_experts"}, 0, 64, 0));
    WEFT_ASSIGN(const std::string joined,
                config.StringOr({"shared_expert_combination_strategy"}, "average"));
    if (shared > 0 && joined != "average") {
        return config.Corrupt("shared_expert_combination_strategy", "'average'");
    }
    WEFT_ASSIGN(const int64_t pattern,
                config.IntOr({"prefix_dense_sliding_window_pattern"}, 1, kMostLayers, 1));
    if (dense > 0 && pattern != 1) {
        return config.Corrupt("prefix_dense_sliding_window_pattern", "1");
    }
    // The softmax is over the chosen logits.
    WEFT_ASSIGN(const bool norm, config.BoolOr({"norm_topk_prob"}, true));
    const Json over = {
        {"first_k_dense_replace", dense}, {"intermediate_size", dense_ffn},
        {"moe_intermediate_size", ffn},   {"scoring_func", function},
        {"n_shared_experts", shared},     {"norm_topk_prob", norm || function == "softmax"}};
    WEFT_ASSIGN(const int64_t step, config.IntOr({"sliding_window_pattern"}, 1, kMostLayers, 4));
    // The pattern of windows begins after these layers, whatever mlp_layer_types says.
    WEFT_ASSIGN(const int64_t first, config.IntOr({"first_k_dense_replace"}, 0, kMostLayers, 0));
    return WithLayerTypes(config.With(over), step, first);
}

Status CohereLayer(Assembly& assembly, int64_t, const std::string& prefix) {
    WEFT_ASSIGN(const bool normed, assembly.config().BoolOr({"use_qk_norm"}, false));
    const std::string name = prefix + "self_attn.q_norm.weight";
    if (assembly.Has(name) == normed) return {};
    return assembly.config().Corrupt(
        "use_qk_norm", fmt::format("{}: there is {}'{}'", !normed, normed ? "no " : "", name));
}

constexpr Rule kCohereRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
};
// Command R+: each head has its own weights.
constexpr Rule kCohereHeadRules[] = {
    {"attn_q_norm", "self_attn.q_norm", Form::kNorm, false},
    {"attn_k_norm", "self_attn.k_norm", Form::kNorm, false},
};
constexpr Rule kCohereSharedRules[] = {
    {"ffn_%_shexp", "mlp.shared_experts.%_proj", Form::kLinear, false},
};

constexpr Family kFolders[] = {
    {.model_type = "cohere",
     .architecture = "command-r",
     .rules = {kCohereRules, kAttentionRules, kMlpRules, kCohereHeadRules},
     .meta = CohereMeta,
     .layer = CohereLayer,
     .adjust = NoRmsNorms,
     .defaults = R"({"max_position_embeddings": 8192, "layer_norm_eps": 1e-5,
                     "rms_norm_eps": null, "rope_theta": 500000.0, "logit_scale": 0.0625,
                     "use_qk_norm": false, "tie_word_embeddings": true})",
     .layer_norm = "layer_norm_eps"},
    {.model_type = "cohere2",
     .architecture = "cohere2",
     .rules = {kCohereRules, kAttentionRules, kMlpRules},
     .meta = Cohere2Meta,
     .adjust = Cohere2Adjust,
     .defaults = R"({"max_position_embeddings": 8192, "layer_norm_eps": 1e-5,
                     "rms_norm_eps": null,
                     "logit_scale": 0.0625, "sliding_window": 4096,
                     "tie_word_embeddings": true})",
     .layer_norm = "layer_norm_eps"},
    {.model_type = "cohere2_moe",
     .architecture = "cohere2moe",
     .rules = {kCohereRules, kAttentionRules, kMoeRules, kCohereSharedRules},
     .meta = Cohere2Meta,
     .gating = "softmax",
     .routing = "norm_topk_prob",
     .adjust = Cohere2MoeAdjust,
     .defaults = R"({"max_position_embeddings": 8192, "layer_norm_eps": 1e-5,
                     "rms_norm_eps": null,
                     "logit_scale": 0.0625, "sliding_window": 4096, "head_dim": 128,
                     "tie_word_embeddings": true, "num_experts": 8, "num_experts_per_tok": 2,
                     "num_shared_experts": 0, "norm_topk_prob": true})",
     .layer_norm = "layer_norm_eps"},
};

ValueId BuildCohere2(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const Moe& moe = b.hyper().moe;
    const bool everywhere = b.hyper().architecture == "command-r";
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const bool experts = b.Has("ffn_gate_inp.weight");
        ValueId q = b.ToHeads(h, "attn_q", false), k = b.ToKvHeads(h, "attn_k", false);
        if (b.Has("attn_q_norm.weight")) {
            q = b.NormApart(q, "attn_q_norm", false);
            k = b.NormApart(k, "attn_k_norm", true);
        }
        if (everywhere || b.IsWindowed() || (moe.experts > 0 && !experts)) {
            q = b.Rope(q, true);
            k = b.Rope(k, true);
        }
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.FromHeads(b.Attention(q, k, v), "attn_output");

        // The mean of routed and shared experts.
        const float share = experts && moe.shared_ffn > 0 ? 0.5f : 1.0f;
        x = b.Add(x, a);
        x = b.Add(x, b.Scale(b.Mlp(h), share));
    }
    return x;
}

constexpr Architecture kArchitectures[] = {
    {.family = {"cohere2", "Command A, Command R7B",
                "LayerNorm, attention beside the MLP, windows, layers without positions",
                "cohere2"},
     .build = BuildCohere2,
     .traits = {.window_pattern = 4, .norms = Norms::kByKey, .logit_factor = true}},
    {.family = {"cohere2moe", "Command A+, Cohere 2 with experts",
                "as cohere2; leading dense layers, a shared expert", "cohere2Moe"},
     .build = BuildCohere2,
     .experts = true,
     .traits = {.window_pattern = 4,
                .norms = Norms::kByKey,
                .logit_factor = true,
                .gate_score = GateScore::kSigmoid}},
    {.family = {"command-r", "Command R, R+",
                "LayerNorm, attention beside the MLP; heads with LayerNorms of their own",
                "commandR, commandRPlus"},
     .build = BuildCohere2,
     .traits = {.norms = Norms::kByKey, .logit_factor = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::cohere
