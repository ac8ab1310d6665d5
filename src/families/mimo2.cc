// MiMo-V2-Flash (Xiaomi 2025): values have fewer columns than keys and are scaled; windowed layers
// have sinks, and their own number of KV heads and RoPE base.
#include "families/family.h"
#include "model_files/hf/mixed_layers.h"

namespace weft::families::mimo2 {

bool MimoSlides(int64_t layer) {
    return layer != 0 && (layer + 1) % 6 != 0;
}

// rope_parameters, in which the default type without a share rotates a third of a head, as in
// transformers; other types rotate all of it.
Result<Json> WithMimoShares(const Config& config) {
    constexpr std::string_view kShare = "partial_rotary_factor";
    WEFT_ASSIGN(const double share, config.F64Or({kShare}, 0.334));
    Json all = config.json()["rope_parameters"];
    for (const std::string_view layers : {kOfAll, kOfWindow}) {
        WEFT_ASSIGN(const Config whole, config.Sub({"rope_parameters"}));
        WEFT_ASSIGN(const Config own, whole.Sub({layers}));
        WEFT_ASSIGN(const std::string type, own.StringOr({"rope_type", "type"}, "default"));
        if (!whole.Has(layers) || own.Names(kShare) || type != "default") continue;
        all[layers][kShare] = share;
    }
    return all;
}

// Renames keys to the usual ones, and builds rope_parameters from separate keys.
Result<Config> MimoAdjust(const Config& config) {
    WEFT_ASSIGN(std::vector<int64_t> hybrid, config.Ints({"hybrid_layer_pattern"}));
    WEFT_ASSIGN(hybrid, EachLayers(config, "hybrid_layer_pattern", std::move(hybrid)));
    WEFT_ASSIGN(std::vector<std::string> types, TypesOf(config, MimoSlides));
    if (!config.Has("layer_types")) {
        for (size_t layer = 0; layer < hybrid.size(); ++layer) {
            types[layer] = hybrid[layer] != 0 ? kOfWindow : kOfAll;
        }
    }
    WEFT_ASSIGN(const int64_t kv, config.NeedInt({"num_key_value_heads"}, 1, kMostHeads));
    WEFT_ASSIGN(const int64_t windowed,
                config.IntOr({"swa_num_key_value_heads"}, 1, kMostHeads, 2 * kv));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, kMostHeads));
    WEFT_ASSIGN(const int64_t windowed_heads,
                config.IntOr({"swa_num_attention_heads"}, 1, kMostHeads, heads));
    WEFT_ASSIGN(const double eps, config.NeedF64({"layernorm_epsilon", "rms_norm_eps"}));
    Json over = {{"layer_types", types},
                 {"rms_norm_eps", eps},
                 {"num_key_value_heads", HeadsByType(types, kv, windowed)}};
    if (windowed_heads != heads)
        over["num_attention_heads"] = HeadsByType(types, heads, windowed_heads);
    for (const auto& [own, other] :
         {std::pair{"swa_head_dim", "head_dim"}, std::pair{"swa_v_head_dim", "v_head_dim"}}) {
        if (!config.Has(own) || config.json()[own] == config.json()[other]) continue;
        return config.Corrupt(own, fmt::format("the same as {}", other));
    }
    // sliding_window_size counts the tokens before the query's own.
    if (config.Has("sliding_window_size")) {
        WEFT_ASSIGN(const int64_t before, config.NeedInt({"sliding_window_size"}, 1, kMostContext));
        over["sliding_window"] = before + 1;
    }
    if (!config.Has("rope_parameters")) {
        WEFT_ASSIGN(const double base, config.F64Or({"rope_theta"}, 5000000.0));
        WEFT_ASSIGN(const double windowed_base, config.F64Or({"swa_rope_theta"}, 10000.0));
        WEFT_ASSIGN(const double share, config.F64Or({"partial_rotary_factor"}, 0.334));
        over["rope_parameters"] = {
            {kOfAll, {{"rope_theta", base}, {"partial_rotary_factor", share}}},
            {kOfWindow, {{"rope_theta", windowed_base}, {"partial_rotary_factor", share}}}};
    } else {
        WEFT_ASSIGN(over["rope_parameters"], WithMimoShares(config));
    }
    if (!config.Has("routed_scaling_factor")) over["routed_scaling_factor"] = 1.0;
    return config.With(over);
}

Status MimoMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteMixed(config, meta, false));
    WEFT_ASSIGN(const double scale, config.F64Or({"attention_value_scale"}, 1.0));
    meta.F32("attention.value_scale", scale);
    return WriteExperts(config, meta, "moe_intermediate_size", "sigmoid");
}

// Q, K and V of a layer in one FP8 matrix, which was sharded for tensor parallelism before it was
// quantized: each shard has its own rows of Q, K and V and its own blocks of scales, of which the
// last may be partial.
struct ShardedQkv {
    int64_t heads, kv_heads, head_dim, value_dim;
    int64_t Rows() const { return heads * head_dim + kv_heads * (head_dim + value_dim); }
    // Whether `shards` shards with blocks of `block` rows have `scale_rows` rows of scales.
    bool Fits(int64_t shards, int64_t scale_rows, int64_t block) const {
        if (heads % shards != 0 || kv_heads % shards != 0) return false;
        return (Rows() / shards + block - 1) / block * shards == scale_rows;
    }
};

Result<int64_t> IntOfLayer(const Config& config, std::string_view key, int64_t layer) {
    if (!config.Has(key) || !config.json()[key].is_array()) {
        return config.NeedInt({key}, 1, kMostHeads);
    }
    WEFT_ASSIGN(const std::vector<int64_t> list, config.Ints({key}));
    const auto at = static_cast<size_t>(layer);
    if (at < list.size() && list[at] >= 1 && list[at] <= kMostHeads) return list[at];
    return config.Corrupt(key, "a number of heads for each layer");
}

Result<ShardedQkv> FusedQkvOf(const Config& config, int64_t layer) {
    ShardedQkv fused{};
    WEFT_ASSIGN(fused.heads, IntOfLayer(config, "num_attention_heads", layer));
    WEFT_ASSIGN(fused.kv_heads, IntOfLayer(config, "num_key_value_heads", layer));
    WEFT_ASSIGN(fused.head_dim, config.NeedInt({"head_dim"}, 1, kMostHeads));
    WEFT_ASSIGN(fused.value_dim, config.NeedInt({"v_head_dim"}, 1, kMostHeads));
    return fused;
}

// The number of shards. No key of config.json holds it; it is the only number that matches the
// scales of all layers. begin: "model.layers.".
Result<int64_t> ShardsOfQkv(const Assembly& assembly, const std::string& begin) {
    const Config& config = assembly.config();
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    std::vector<int64_t> fitting;
    for (int64_t shards = 1; shards <= 64; ++shards) fitting.push_back(shards);
    for (int64_t layer = 0; layer < layers; ++layer) {
        const std::string module = fmt::format("{}{}.self_attn.qkv_proj", begin, layer);
        const SafeTensor* weight = assembly.Find(module + ".weight");
        const SafeTensor* scales = assembly.Find(module + ".weight_scale_inv");
        if (weight == nullptr) continue;
        const int64_t block = assembly.ScaleBlock(module).first;
        if (scales == nullptr || block == 0 || weight->shape.size() != 2 ||
            scales->shape.size() != 2) {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: '{}' is fused; expected FP8 with weight_scale_inv, from which "
                             "the layout is derived",
                             assembly.folder(), module);
        }
        WEFT_ASSIGN(const ShardedQkv fused, FusedQkvOf(config, layer));
        if (weight->shape[0] != fused.Rows()) {
            return MakeError(ErrorCode::kCorrupt, "{}: '{}' has {} rows; expected {}",
                             assembly.folder(), module, weight->shape[0], fused.Rows());
        }
        std::erase_if(fitting,
                      [&](int64_t shards) { return !fused.Fits(shards, scales->shape[0], block); });
    }
    if (fitting.size() == 1) return fitting[0];
    return MakeError(
        ErrorCode::kUnsupported,
        "{}: the number of tensor-parallel shards of '{}*.self_attn.qkv_proj' is not "
        "known: its scales match {}",
        assembly.folder(), begin,
        fitting.empty() ? "no number" : fmt::format("{} or {}", fitting[0], fitting[1]));
}

Status MimoLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const std::string module = prefix + "self_attn.qkv_proj";
    if (!assembly.HasLinear(module)) return {};
    const std::string own = fmt::format("{}.", layer);
    WEFT_ASSIGN(const int64_t shards,
                ShardsOfQkv(assembly, prefix.substr(0, prefix.size() - own.size())));
    WEFT_ASSIGN(const ShardedQkv fused, FusedQkvOf(assembly.config(), layer));
    int64_t first = 0;  // row within a shard
    for (const auto& [name, rows] : {std::pair{"attn_q", fused.heads * fused.head_dim},
                                     std::pair{"attn_k", fused.kv_heads * fused.head_dim},
                                     std::pair{"attn_v", fused.kv_heads * fused.value_dim}}) {
        WEFT_ASSIGN(MatrixPtr all, assembly.Linear(module, shards));
        assembly.Add(Assembly::Block(layer, name) + ".weight",
                     SomeRows(std::move(all), first, rows / shards, fused.Rows() / shards, rows));
        first += rows / shards;
    }
    return {};
}

// The layer of the draft head has another name for one norm.
constexpr Rule kMimoNormRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm, false},
    {"ffn_norm", "pre_mlp_layernorm", Form::kNorm, false},
};
constexpr DraftHeadNames kMimoDraftHead = {"eh_proj", "enorm",      "hnorm", "final_layernorm",
                                           false,     "model.mtp.", true,    true};
constexpr Rule kMimoRules[] = {
    {"attn_sinks.weight", "self_attn.attention_sink_bias", Form::kVector, false},
    {"attn_sinks.weight", "self_attn.sinks", Form::kVector, false},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", Form::kVector, false},
};
// Q, K and V may be one matrix (MimoLayer), so no rule is required.
constexpr Rule kMimoAttentionRules[] = {
    {"attn_q", "self_attn.q_proj", Form::kQuery, false},
    {"attn_k", "self_attn.k_proj", Form::kKey, false},
    {"attn_v", "self_attn.v_proj", Form::kLinear, false},
    {"attn_output", "self_attn.o_proj", Form::kLinear},
};

constexpr Family kFolders[] = {
    {.model_type = "mimo_v2_flash",
     .also = "mimo_v2",
     .architecture = "mimo2",
     .rules = {kMimoNormRules, kMimoAttentionRules, kMoeRules, kMimoRules},
     .meta = MimoMeta,
     .routing = kGroupRouting,
     .layer = MimoLayer,
     .adjust = MimoAdjust,
     .defaults =
         R"({"max_position_embeddings": 202752, "head_dim": 192, "v_head_dim": 128, "n_group": 1,
             "rms_norm_eps": 1e-5, "sliding_window": 129, "attention_value_scale": 0.707,
             "num_experts_per_tok": 8, "norm_topk_prob": true, "topk_group": 1,
             "num_key_value_heads": 4})",
     .rope = {.by_layer_type = true, .partial = true, .windowed_partial = true},
     .draft_head = &kMimoDraftHead},
};

ValueId BuildMimo2(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) {
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", false), false);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", false), false);
        const ValueId v = b.Scale(b.ToKvHeads(h, "attn_v", false), b.hyper().value_scale);
        return b.FromHeads(b.Attention(q, k, v), "attn_output");
    });
}

constexpr Architecture kArchitectures[] = {
    {.family = {"mimo2", "MiMo V2 Flash",
                "values narrower than keys, sinks, heads and RoPE that differ by layer", "mimo2"},
     .build = BuildMimo2,
     .experts = true,
     .traits = {.draft_head = true, .value_scale = true, .gate_score = GateScore::kSigmoid}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::mimo2
