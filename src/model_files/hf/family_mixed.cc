// Models whose windowed layers have their own heads and RoPE, or whose attention has an output
// gate: MiMo-V2, Step 3.5, Laguna and Trinity.
#include <algorithm>

#include "model_files/hf/assembly.h"
#include "model_files/hf/mixed_layers.h"

namespace weft::model_files::hf {
namespace {

// ---- Trinity ------------------------------------------------------------------------------------

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

// ---- Muse Glimmer -------------------------------------------------------------------------------

// Layers without a window (every fourth, counted from the last) have no RoPE.
Result<Config> MuseAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    std::vector<std::string> types;
    WEFT_ASSIGN(types, config.Strings({"layer_types"}));
    WEFT_ASSIGN(types, EachLayers(config, "layer_types", std::move(types)));
    for (int64_t layer = static_cast<int64_t>(types.size()); layer < layers; ++layer) {
        types.emplace_back((layers - 1 - layer) % 4 == 0 ? kOfAll : kOfWindow);
    }
    if (config.Has("layer_rope_theta")) {
        const Json& bases = config.json()["layer_rope_theta"];
        bool fits = bases.is_array() && static_cast<int64_t>(bases.size()) == layers;
        for (size_t layer = 0; fits && layer < types.size(); ++layer) {
            fits = bases[layer].is_number() && (bases[layer] != 0) == (types[layer] == kOfWindow);
        }
        if (!fits) {
            return config.Corrupt("layer_rope_theta", "0 for exactly the layers without a window");
        }
    }
    WEFT_TRY(config.MustBe("attention_bias", false));
    WEFT_ASSIGN(const double eps, config.NeedF64({"post_norm_eps"}));
    if (eps != 1e-8)
        return config.Corrupt("post_norm_eps", "1e-8, since GGUF files have no key for it");
    return config.With(Json{{"layer_types", types}});
}

Status MuseMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    constexpr const char* kCap = "final_logit_softcapping";
    for (const auto& [key, from] :
         {std::pair{"logit_scale", "output_multiplier"}, std::pair{kCap, kCap}}) {
        WEFT_ASSIGN(const double value, config.NeedF64({from}));
        if (!(value > 0)) return config.Corrupt(from, "more than 0");
        meta.F32(key, value);
    }
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, kMostContext));
    return WriteWindow(config, meta, window, nullptr);
}

// Heads are normed without weights, and queries are scaled: adds weights with that effect.
Status MuseLayer(Assembly& assembly, int64_t layer, const std::string&) {
    WEFT_ASSIGN(const int64_t head_dim, HeadDim(assembly.config()));
    WEFT_ASSIGN(const double scale, assembly.config().NeedF64({"qk_scale_factor"}));
    const auto count = static_cast<size_t>(head_dim);
    assembly.AddVector(Assembly::Block(layer, "attn_q_norm.weight"),
                       FromFloats(std::vector<float>(count, static_cast<float>(scale))));
    assembly.AddVector(Assembly::Block(layer, "attn_k_norm.weight"),
                       FromFloats(std::vector<float>(count, 1.0f)));
    return {};
}

// ---- Laguna -------------------------------------------------------------------------------------

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

// ---- MiMo-V2 ------------------------------------------------------------------------------------

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

// ---- Step 3.5 -----------------------------------------------------------------------------------

// Builds rope_parameters by layer type from lists by layer.
Result<Json> StepRope(const Config& config, const std::vector<std::string>& types) {
    std::vector<double> bases, shares;
    const bool list = config.Has("rope_theta") && config.json()["rope_theta"].is_array();
    if (list) {
        WEFT_ASSIGN(bases, config.Floats({"rope_theta"}));
    } else {
        WEFT_ASSIGN(const double base, config.F64Or({"rope_theta"}, 10000.0));
        bases.assign(types.size(), base);
    }
    WEFT_ASSIGN(bases, EachLayers(config, "rope_theta", std::move(bases)));
    WEFT_ASSIGN(shares, config.Floats({"partial_rotary_factors"}));
    WEFT_ASSIGN(shares, EachLayers(config, "partial_rotary_factors", std::move(shares)));
    WEFT_ASSIGN(const Config scaling, config.Sub({"rope_scaling"}));
    Json out = Json::object();
    for (size_t layer = 0; layer < types.size(); ++layer) {
        Json one = types[layer] == kOfAll ? scaling.json() : Json::object();
        one["rope_theta"] = bases[layer];
        if (!shares.empty()) one["partial_rotary_factor"] = shares[layer];
        Json& known = out[types[layer]];
        if (!known.is_null() && known != one) {
            return config.Corrupt("rope_theta", "the same RoPE for all layers of a type");
        }
        known = std::move(one);
    }
    return out;
}

Result<int64_t> StepWindowedHeads(const Config& config, int64_t heads) {
    WEFT_ASSIGN(const Config other, config.Sub({"attention_other_setting"}));
    for (const auto& [own, usual] : {std::pair{"num_attention_groups", "num_attention_groups"},
                                     std::pair{"head_dim", "head_dim"}}) {
        if (!other.Has(own) || !config.Has(usual) || other.json()[own] == config.json()[usual]) {
            continue;
        }
        return other.Corrupt(own, "the same as in the other layers");
    }
    WEFT_ASSIGN(const int64_t named, other.IntOr({"num_attention_heads"}, 1, kMostHeads, heads));
    return config.IntOr({"num_sliding_attention_heads"}, 1, kMostHeads, named);
}

Result<Config> StepAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("use_bidirectional_attention", false));
    WEFT_TRY(config.MustBe("mlp_bias", false));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, kMostHeads));
    WEFT_ASSIGN(const int64_t windowed, StepWindowedHeads(config, heads));
    WEFT_ASSIGN(const double head_dim, config.NeedF64({"head_dim"}));
    WEFT_ASSIGN(const double scalar, config.F64Or({"query_pre_attn_scalar"}, head_dim));
    if (scalar != head_dim) return config.Corrupt("query_pre_attn_scalar", "head_dim");
    WEFT_ASSIGN(const int64_t groups,
                config.NeedInt({"num_attention_groups", "num_key_value_heads"}, 1, kMostHeads));
    WEFT_ASSIGN(const int64_t experts,
                config.NeedInt({"moe_num_experts", "n_routed_experts"}, 1, 1 << 16));
    WEFT_ASSIGN(const int64_t used,
                config.NeedInt({"moe_top_k", "num_experts_per_tok"}, 1, experts));
    WEFT_ASSIGN(const int64_t shared,
                config.NeedInt({"share_expert_dims", "share_expert_dim"}, 1, 1 << 20));
    WEFT_ASSIGN(const double scale, config.NeedF64({"moe_router_scaling_factor"}));
    WEFT_ASSIGN(const std::vector<std::string> types,
                TypesOf(config, [](int64_t) { return false; }));
    Json over = {{"layer_types", types},
                 {"num_key_value_heads", groups},
                 {"num_experts", experts},
                 {"n_routed_experts", nullptr},
                 {"num_local_experts", nullptr},
                 {"num_experts_per_tok", used},
                 {"shared_expert_intermediate_size", shared},
                 {"norm_topk_prob", true},
                 {"routed_scaling_factor", scale},
                 // Step's GGUF files have a factor for each pair of a head.
                 {"rope_factor_count", static_cast<int64_t>(head_dim) / 2}};
    if (windowed != heads) over["num_attention_heads"] = HeadsByType(types, heads, windowed);
    WEFT_ASSIGN(std::vector<std::string> all, config.Strings({"layer_types"}));
    if (all.size() > types.size()) over["mtp_layer_types"] = {all[types.size()]};
    if (!config.Has("rope_parameters")) {
        WEFT_ASSIGN(over["rope_parameters"], StepRope(config, types));
        for (const char* key : {"rope_theta", "rope_scaling"}) over[key] = nullptr;
    }
    return config.With(over);
}

// Limits by layer; null: none.
Status WriteLimits(const Config& config, const char* from, const char* key, MetaWriter& meta) {
    if (!config.Has(from)) return {};
    Json given = config.json()[from];
    if (!given.is_array()) return config.Corrupt(from, "a list of numbers");
    for (Json& limit : given) {
        if (limit.is_null()) limit = 0.0;
    }
    const Config numbers = config.With(Json{{from, given}});
    WEFT_ASSIGN(const std::vector<double> list, numbers.Floats({from}));
    WEFT_ASSIGN(const std::vector<double> limits, EachLayers(config, from, list));
    const bool any = std::ranges::any_of(limits, [](double limit) { return limit != 0; });
    if (any) meta.F32s(key, std::vector<float>(limits.begin(), limits.end()));
    return {};
}

Status StepMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteMixed(config, meta, false));
    // GGUF files give the rotated dims of windowed layers; the others rotate half of them.
    WEFT_ASSIGN(const int64_t head_dim, HeadDim(config));
    WEFT_ASSIGN(const int64_t rotary, RotaryDim(config, head_dim));
    if (2 * rotary != head_dim) {
        return config.Corrupt("rope_parameters", "0.5 for layers without a window");
    }
    WEFT_TRY(WriteLimits(config, "swiglu_limits", "swiglu_clamp_exp", meta));
    WEFT_TRY(WriteLimits(config, "swiglu_limits_shared", "swiglu_clamp_shexp", meta));
    return WriteExperts(config, meta, "moe_intermediate_size", "sigmoid");
}

// Experts are stacked in one tensor.
Status StepLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const int64_t count, assembly.ExpertCount());
    for (const std::string name : {"gate", "up", "down"}) {
        WEFT_ASSIGN(MatrixPtr stack, assembly.Linear(prefix + "moe." + name + "_proj", count));
        if (stack == nullptr) continue;
        if (stack->rows() % count != 0) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: '{}moe.{}_proj.weight' has {} rows; expected a multiple of {} "
                             "experts",
                             assembly.folder(), prefix, name, stack->rows(), count);
        }
        const std::vector<int64_t> dims = {stack->cols(), stack->rows() / count, count};
        assembly.Add(Assembly::Block(layer, "ffn_" + name + "_exps.weight"), std::move(stack),
                     dims);
    }
    return {};
}

// ---- Tables -------------------------------------------------------------------------------------

constexpr Rule kAfmoeRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"ffn_norm", "pre_mlp_layernorm", Form::kNorm},
    {"post_ffw_norm", "post_mlp_layernorm", Form::kNorm},
    {"attn_gate", "self_attn.gate_proj", Form::kLinear},
    {"ffn_gate_inp", "mlp.router.gate", Form::kRouter, false},
    {"exp_probs_b.bias", "mlp.expert_bias", Form::kVector, false},
};
constexpr Rule kMuseRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"ffn_norm", "pre_feedforward_layernorm", Form::kNorm},
    {"post_ffw_norm", "post_feedforward_layernorm", Form::kNorm},
    {"attn_gate", "self_attn.gate_proj", Form::kLinear},
};
constexpr Rule kLagunaRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm},
    {"attn_gate", "self_attn.g_proj", Form::kLinear},
    {"exp_probs_b.bias", "mlp.experts.e_score_correction_bias", Form::kVector, false},
    {"ffn_%_shexp", "mlp.shared_expert.%_proj", Form::kLinear, false},
};
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
constexpr DraftHeadNames kStepDraftHead = {
    "eh_proj", "enorm", "hnorm", "transformer.shared_head.norm",  false,
    "",        true,    true,    "transformer.shared_head.output"};
constexpr Rule kStepRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm},
    {"attn_gate", "self_attn.g_proj", Form::kLinear},
    {"ffn_gate_inp", "moe.gate", Form::kRouter, false},
    {"exp_probs_b.bias", "moe.router_bias", Form::kVector, false},
    {"ffn_%_shexp", "share_expert.%_proj", Form::kLinear, false},
};

constexpr RopeTraits kMixedRope = {.by_layer_type = true, .partial = true};

constexpr Family kMixedFamilies[] = {
    {.model_type = "muse_glimmer",
     .also = "muse_glimmer_text",
     .architecture = "muse-glimmer",
     .rules = {kMuseRules, kAttentionRules, kMlpRules},
     .meta = MuseMeta,
     .layer = MuseLayer,
     .pairs = true,
     .norm_add = 1,
     .plain_final_norm = true,
     .adjust = MuseAdjust,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "head_dim": 128, "num_key_value_heads": 2, "sliding_window": 2048,
                     "final_logit_softcapping": 20.0, "qk_scale_factor": 3.87,
                     "output_multiplier": 0.19611613513818404, "post_norm_eps": 1e-8})",
     .caps = "final_logit_softcapping",
     .more_tensors = "attn_gate.columns"},
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
    {.model_type = "step3p5",
     .also = "step3p7",
     .architecture = "step35",
     .rules = {kStepRules, kAttentionRules, kQkNormRules, kMoeRules},
     .meta = StepMeta,
     .layer = StepLayer,
     .norm_add = 1,
     .adjust = StepAdjust,
     .defaults = R"({"max_position_embeddings": 128000, "rms_norm_eps": 1e-5, "head_dim": 128,
                     "moe_router_scaling_factor": 1.0, "share_expert_dim": 1280,
                     "n_routed_experts": 288, "num_experts_per_tok": 8,
                     "moe_intermediate_size": 1280, "num_key_value_heads": 8})",
     .rope = kMixedRope,
     .draft_head = &kStepDraftHead,
     // Its GGUF files give the rotated columns of windowed layers; the others rotate half of them.
     .rotary_times = 2},
};

}  // namespace

extern const std::span<const Family> kMixedModels = kMixedFamilies;

}  // namespace weft::model_files::hf
