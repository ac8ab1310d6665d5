// OLMo (Groeneveld et al. 2024): Llama's layers with LayerNorms without weights; queries, keys and
// values may be clamped. OLMo 2 (OLMo Team 2024) and 3: norms after attention and MLP instead of
// before them, Q and K RMS-normed over all heads at once, RoPE over halves. OLMo 3 has windows in
// three of four layers. OLMoE (Muennighoff et al. 2024) and FlexOlmo have experts. In OLMo-Hybrid
// (2026), three of four layers are gated delta nets, with norms before both halves; its attention
// has no positions.
#include "families/family.h"
#include "model_files/hf/delta_net.h"

namespace weft::families::olmo {

Status OlmoMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    return WriteClamp(config, meta);
}

Status OlmoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteClamp(config, meta));
    return WriteExperts(config, meta, "intermediate_size", "softmax");
}

// Three of four layers are windowed; their RoPE is not scaled.
Status Olmo3Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, kMostContext, 0));
    WEFT_TRY(WriteWindow(config, meta, window, [](int64_t layer) { return (layer + 1) % 4 != 0; }));
    return WriteWindowedBase(config, meta);
}

// In released models rope_parameters, or its base, is null: attention has no positions.
Result<Config> OlmoHybridAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, 4096));
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const int64_t key_heads, config.IntOr({"linear_num_key_heads"}, 1, 4096, heads));
    WEFT_ASSIGN(const int64_t values, config.IntOr({"linear_num_value_heads"}, 1, 4096, heads));
    const int64_t usual = hidden * 3 / 4 / key_heads;
    WEFT_ASSIGN(const int64_t key_dim, config.IntOr({"linear_key_head_dim"}, 1, 1024, usual));
    WEFT_ASSIGN(const int64_t value_dim,
                config.IntOr({"linear_value_head_dim"}, 1, 1024, 2 * key_dim));
    WEFT_ASSIGN(const Config rope, config.Sub({"rope_parameters"}));
    Json over = {{"linear_num_key_heads", key_heads},
                 {"linear_num_value_heads", values},
                 {"linear_key_head_dim", key_dim},
                 {"linear_value_head_dim", value_dim},
                 {"rotates", rope.Has("rope_theta")}};
    if (!rope.Has("rope_theta")) over["rope_parameters"] = nullptr;
    return config.With(over);
}

Status OlmoHybridMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(DeltaNetMeta(config, meta));
    WEFT_ASSIGN(const bool rotates, config.BoolOr({"rotates"}, false));
    meta.Bool("rope.scaling.finetuned", rotates);
    WEFT_ASSIGN(const bool doubles, config.BoolOr({"linear_allow_neg_eigval"}, true));
    meta.Bool("ssm.allow_neg_eigval", doubles);
    meta.F32("ssm.norm_rms_epsilon", 1e-5);
    return {};
}

// One norm is before the MLP in layers with state, and after attention in others. Its name in
// published folders differs from that of transformers.
Status OlmoHybridLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const std::vector<bool> recurrent, RecurrentLayers(assembly.config()));
    const bool has = recurrent[static_cast<size_t>(layer)];
    std::string name = prefix + "feedforward_layer_norm.weight";
    if (!assembly.Has(name)) name = prefix + "post_attention_layernorm.weight";
    WEFT_ASSIGN(MatrixPtr norm, assembly.Checked(assembly.Column(name), name, 0));
    assembly.AddVector(
        Assembly::Block(layer, has ? "ffn_norm.weight" : "post_attention_norm.weight"),
        std::move(norm));
    return has ? AddDeltaNet(assembly, layer, prefix, DeltaForm::kSeparate) : Status();
}

constexpr Rule kOlmoHybridRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm, false},
    {"attn_norm", "attention_layer_norm", Form::kNorm, false},
    {"post_ffw_norm", "post_feedforward_layernorm", Form::kNorm, false},
    {"ssm_norm.weight", "linear_attn.o_norm.weight", Form::kVector, false},
};

constexpr Family kFolders[] = {
    {.model_type = "olmo",
     .architecture = "olmo",
     .rules = {kAttentionRules, kMlpRules},
     .meta = OlmoMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 2048, "rms_norm_eps": null,
                     "layer_norm_eps": 1e-5})",
     .plain_norms = true,
     .layer_norm = "layer_norm_eps",
     .more_tensors = "attn_output.bias?attention_bias"},
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
    {.model_type = "olmo2",
     .architecture = "olmo2",
     .rules = {kPostNormRules, kAttentionRules, kQkNormRules, kMlpRules},
     .defaults = R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-5})",
     .rope = {.whole_magnitude = true},
     .written = {.name = "Olmo2ForCausalLM", .pattern = 4}},
    {.model_type = "olmo3",
     .architecture = "olmo2",
     .rules = {kPostNormRules, kAttentionRules, kQkNormRules, kMlpRules},
     .meta = Olmo3Meta,
     .defaults = R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                     "rope_theta": 500000.0, "sliding_window": 4096})",
     .rope = {.by_layer_type = true, .windowed_base = "rope_theta", .whole_magnitude = true},
     .written = {.name = "Olmo3ForCausalLM", .windows = ClassWindows::kByLayer}},
    {.model_type = "olmo_hybrid",
     .architecture = "olmo-hybrid",
     .rules = {kOlmoHybridRules, kDeltaAttentionRules, kMlpRules},
     .meta = OlmoHybridMeta,
     .layer = OlmoHybridLayer,
     .adapted = SeparateParts,
     .adjust = OlmoHybridAdjust,
     .defaults = R"({"max_position_embeddings": 65536, "linear_conv_kernel_dim": 4,
                     "linear_allow_neg_eigval": true})",
     .more_tensors = "ssm_conv1d.weight"},
};

ValueId BuildOlmoHybrid(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        if (b.HasState()) {
            x = b.Add(x, b.GatedDeltaNet(b.Norm(x, "attn_norm", hidden)));
            x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", hidden)));
            continue;
        }
        auto [q, k] = b.NormHeads({b.ToHeads(x, "attn_q", false), b.ToKvHeads(x, "attn_k", false)});
        if (b.hyper().rotates) {
            q = b.Rope(q, false);
            k = b.Rope(k, false);
        }
        const ValueId a = b.Attention(q, k, b.ToKvHeads(x, "attn_v", false));
        x = b.Add(x, b.Norm(b.FromHeads(a, "attn_output"), "post_attention_norm", hidden));
        x = b.Add(x, b.Norm(b.Mlp(x), "post_ffw_norm", hidden));
    }
    return x;
}

ValueId BuildOlmo2(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const auto [q, k] =
            b.NormHeads({b.ToHeads(x, "attn_q", false), b.ToKvHeads(x, "attn_k", false)});
        const ValueId v = b.ToKvHeads(x, "attn_v", false);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
        x = b.Add(x, b.Norm(b.FromHeads(a, "attn_output"), "post_attention_norm", hidden));

        x = b.Add(x, b.Norm(b.Mlp(x), "post_ffw_norm", hidden));
    }
    return x;
}

constexpr Architecture kArchitectures[] = {
    {.family = {"olmo", "OLMo 1, 1.7", "LayerNorm without weights, clamped heads",
                "olmo, olmoClamped"},
     .build = LlamaLayers,
     .traits = {.norms = Norms::kPlainLayer, .clamps = true}},
    {.family = {"olmoe", "OLMoE", "norms over all heads, clamped heads", "olmoe, olmoeClamped"},
     .build = NormedRowLayers,
     .experts = true,
     .traits = {.clamps = true, .renormalises = false}},
    {.family = {"flex-olmo", "FlexOlmo (folders)", "as OLMo 2, with experts", "flexOlmo"},
     .build = BuildOlmo2,
     .experts = true},
    {.family = {"olmo-hybrid", "OLMo-Hybrid (folders)",
                "gated delta nets, attention without positions, norms over all heads",
                "olmoHybrid, olmoHybridRope"},
     .build = BuildOlmoHybrid,
     .traits = {.marks_rotation = true, .recurrent = Recurrent::Kind::kDeltaNet}},
    {.family = {"olmo2", "OLMo 2, OLMo 3", "norms over all heads, windows, YaRN", "olmo2, olmo3"},
     .build = BuildOlmo2,
     .traits = {.window_pattern = 4, .plain_windows = true, .whole_magnitude = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::olmo
