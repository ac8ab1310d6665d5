// Step 3.5 Flash (StepFun 2026): query and key heads are normed, a gate computed from the layer's
// input multiplies each head's output, and windowed layers have their own heads and RoPE.
#include "families/family.h"
#include "model_files/hf/mixed_layers.h"

namespace weft::families::step35 {

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
        assembly.AddExperts(layer, "ffn_" + name, std::move(stack), count);
    }
    return {};
}

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

constexpr Family kFolders[] = {
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

ValueId BuildStep35(Builder& b, ValueId x) {
    return GatedHeadLayers(b, x, RowGate::kSigmoid);
}

constexpr Architecture kArchitectures[] = {
    {.family = {"step35", "Step 3.5 Flash",
                "a gate per head, gated units with a limit, heads and RoPE that differ by layer",
                "step35"},
     .build = BuildStep35,
     .experts = true,
     .traits = {.draft_head = true,
                .limits = true,
                .halves_rotary = true,
                .plain_windows = true,
                .gate_score = GateScore::kSigmoid}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::step35
