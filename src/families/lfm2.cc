// LFM2 and LFM2.5, dense and with experts, and the text part of LFM2-VL (Liquid AI 2025): most
// layers are gated short convolutions, the others attention with normed query and key heads.
// Routing uses sigmoids with a bias.
#include "families/family.h"

namespace weft::families::lfm2 {

constexpr std::string_view kConvLayer = "conv", kAttentionLayer = "full_attention";

// Columns of the MLP: config.json may give those of an MLP without a gate.
Result<int64_t> FfnColumns(const Config& config) {
    WEFT_ASSIGN(int64_t columns, config.NeedInt({"block_ff_dim", "intermediate_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const bool adjusted, config.BoolOr({"block_auto_adjust_ff_dim"}, false));
    if (!adjusted) return columns;
    columns = 2 * columns / 3;
    if (!config.Has("block_ffn_dim_multiplier")) return columns;
    WEFT_ASSIGN(const double factor, config.NeedF64({"block_ffn_dim_multiplier"}));
    WEFT_ASSIGN(const int64_t multiple, config.IntOr({"block_multiple_of"}, 1, 1 << 20, 256));
    if (!(factor > 0 && factor <= 64)) {
        return config.Corrupt("block_ffn_dim_multiplier", "a number above 0, at most 64");
    }
    columns = static_cast<int64_t>(factor * static_cast<double>(columns));
    columns = (columns + multiple - 1) / multiple * multiple;
    if (columns >= 1 && columns <= 1 << 20) return columns;
    return config.Corrupt("intermediate_size", "1 to 1048576 columns after the adjustment");
}

// Renames its keys to the usual ones.
Result<Config> Lfm2Adjust(const Config& config) {
    WEFT_ASSIGN(const double eps, config.NeedF64({"norm_eps"}));
    WEFT_ASSIGN(const bool usual, config.BoolOr({"tie_word_embeddings"}, true));
    WEFT_ASSIGN(const bool tied, config.BoolOr({"tie_embedding"}, usual));
    WEFT_ASSIGN(const int64_t ffn, FfnColumns(config));
    Json over = {{"rms_norm_eps", eps}, {"tie_word_embeddings", tied}, {"intermediate_size", ffn}};
    if (config.Has("num_dense_layers")) {
        WEFT_ASSIGN(const int64_t dense, config.NeedInt({"num_dense_layers"}, 0, 4096));
        over["first_k_dense_replace"] = dense;
    }
    if (!config.Has("layer_types")) {
        WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
        WEFT_ASSIGN(const std::vector<int64_t> whole, config.Ints({"full_attn_idxs"}));
        const bool all = !config.Has("full_attn_idxs");
        Json types = Json::array();
        for (int64_t layer = 0; layer < layers; ++layer) {
            const bool attends = all || std::ranges::find(whole, layer) != whole.end();
            types.push_back(attends ? kAttentionLayer : kConvLayer);
        }
        over["layer_types"] = std::move(types);
    }
    return config.With(over);
}

Status Lfm2Meta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const std::vector<bool> conv, LayersOfType(config, kConvLayer));
    WEFT_ASSIGN(const int64_t taps, config.NeedInt({"conv_L_cache"}, 2, 64));
    WEFT_ASSIGN(const int64_t kv, config.NeedInt({"num_key_value_heads"}, 1, 4096));
    // A convolution layer has no KV heads.
    Json heads = Json::array();
    for (const bool none : conv) heads.push_back(none ? 0 : kv);
    const Json json = {{"layer_types", Json::array()}, {"num_key_value_heads", std::move(heads)}};
    WEFT_TRY(WriteCommon(config.With(json), meta));
    meta.Int("shortconv.l_cache", taps);
    return {};
}

Status Lfm2MoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(Lfm2Meta(config, meta));
    return WriteExperts(config, meta, "moe_intermediate_size", "sigmoid");
}

// Adds the taps, which GGUF files have in F32, and the bias for the choice of experts, which
// config.json may disable.
Status Lfm2Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const Config& config = assembly.config();
    WEFT_ASSIGN(const std::vector<bool> conv, LayersOfType(config, kConvLayer));
    const std::string name = prefix + "conv.conv.weight";
    if (assembly.Has(name) != conv[static_cast<size_t>(layer)]) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: layer {} {} the tensors of a conv layer, against config.json",
                         assembly.folder(), layer, assembly.Has(name) ? "has" : "lacks");
    }
    WEFT_ASSIGN(MatrixPtr taps, assembly.Tensor(name));
    if (taps != nullptr) {
        assembly.Add(Assembly::Block(layer, "shortconv.conv.weight"),
                     Converted(std::move(taps), DType::kF32));
        WEFT_ASSIGN(MatrixPtr shift, assembly.Column(prefix + "conv.conv.bias"));
        WEFT_ASSIGN(const bool biased, config.BoolOr({"conv_bias"}, false));
        if (biased != (shift != nullptr)) {
            return config.Corrupt("conv_bias", biased ? "false: a layer has no conv.conv.bias"
                                                      : "true: a layer has a conv.conv.bias");
        }
        if (shift != nullptr) {
            assembly.AddVector(Assembly::Block(layer, "shortconv.conv.bias"), std::move(shift));
        }
    }
    WEFT_ASSIGN(const bool biased, config.BoolOr({"use_expert_bias"}, false));
    if (!biased || !assembly.HasLinear(prefix + "feed_forward.gate")) return {};
    const std::string bias = prefix + "feed_forward.expert_bias";
    WEFT_ASSIGN(MatrixPtr column, assembly.Column(bias));
    if (column == nullptr) return assembly.Missing(bias);
    assembly.AddVector(Assembly::Block(layer, "exp_probs_b.bias"), std::move(column));
    return {};
}

constexpr Rule kLfm2Rules[] = {
    {"attn_norm", "operator_norm", Form::kNorm},
    {"ffn_norm", "ffn_norm", Form::kNorm},
    {"shortconv.in_proj", "conv.in_proj", Form::kLinear, false},
    {"shortconv.out_proj", "conv.out_proj", Form::kLinear, false},
};
constexpr Rule kLfm2AttentionRules[] = {
    {"attn_q", "self_attn.q_proj", Form::kLinear, false},
    {"attn_k", "self_attn.k_proj", Form::kLinear, false},
    {"attn_v", "self_attn.v_proj", Form::kLinear, false},
    {"attn_output", "self_attn.out_proj", Form::kLinear, false},
    {"attn_q_norm", "self_attn.q_layernorm", Form::kNorm, false},
    {"attn_k_norm", "self_attn.k_layernorm", Form::kNorm, false},
};
constexpr Rule kLfm2MlpRules[] = {
    {"ffn_%", "feed_forward.w%", Form::kLinear, false},
};
constexpr Rule kLfm2MoeRules[] = {
    {"ffn_gate_inp", "feed_forward.gate", Form::kRouter, false},
    {"ffn_%_exps", "feed_forward.experts.*.w%", Form::kExperts, false},
};

constexpr Family kFolders[] = {
    {.model_type = "lfm2",
     .architecture = "lfm2",
     .rules = {kLfm2Rules, kLfm2AttentionRules, kLfm2MlpRules},
     .meta = Lfm2Meta,
     .layer = Lfm2Layer,
     .adjust = Lfm2Adjust,
     .defaults = R"({"max_position_embeddings": 128000, "norm_eps": 1e-5, "conv_L_cache": 3,
                     "conv_bias": false, "num_key_value_heads": 8, "rope_theta": 1000000.0,
                     "block_auto_adjust_ff_dim": true, "block_multiple_of": 256,
                     "block_ffn_dim_multiplier": 1.0, "tie_word_embeddings": true})",
     .final_norm = "embedding_norm",
     .gguf_final_norm = "token_embd_norm.weight",
     .more_tensors = "shortconv.conv.weight"},
    {.model_type = "lfm2_moe",
     .architecture = "lfm2moe",
     .rules = {kLfm2Rules, kLfm2AttentionRules, kLfm2MlpRules, kLfm2MoeRules},
     .meta = Lfm2MoeMeta,
     .routing = "norm_topk_prob routed_scaling_factor",
     .layer = Lfm2Layer,
     .adjust = Lfm2Adjust,
     .defaults = R"({"max_position_embeddings": 128000, "norm_eps": 1e-5, "conv_L_cache": 3,
                     "conv_bias": false, "num_key_value_heads": 8, "rope_theta": 1000000.0,
                     "moe_intermediate_size": 1792, "num_dense_layers": 2, "num_experts": 32,
                     "num_experts_per_tok": 4, "use_expert_bias": true, "norm_topk_prob": true,
                     "routed_scaling_factor": 1.0, "tie_word_embeddings": true})",
     .final_norm = "embedding_norm",
     .gguf_final_norm = "token_embd_norm.weight",
     .more_tensors = "shortconv.conv.weight exp_probs_b.bias"},
};

ValueId BuildLfm2(Builder& b, ValueId x) {
    const int64_t head_dim = b.hyper().head_dim;
    return PreNormLayers(b, x, [&](ValueId h) {
        if (b.HasState()) return b.ShortConv(h);
        const ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
        const ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
        return b.FromHeads(a, "attn_output");
    });
}

constexpr Architecture kArchitectures[] = {
    {.family = {"lfm2", "LFM2, LFM2.5 (dense)", "gated short convolutions, normed heads", "lfm2"},
     .build = BuildLfm2,
     .traits = {.recurrent = Recurrent::Kind::kShortConv}},
    {.family = {"lfm2moe", "LFM2, LFM2.5 with experts",
                "gated short convolutions, normed heads, leading dense layers", "lfm2moe"},
     .build = BuildLfm2,
     .experts = true,
     .traits = {.gate_score = GateScore::kSigmoid, .recurrent = Recurrent::Kind::kShortConv}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::lfm2
