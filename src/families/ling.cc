// Ling 2 and Ring 2 (Ant 2025): Qwen 3's layers with leading dense layers and groups of experts;
// Sarvam's model with experts is the same. Ling 3 (2026): Kimi Linear's layers, in which attention
// has positions and a gate per head, and decays are bounded.
#include "families/family.h"
#include "model_files/hf/kimi_delta.h"

namespace weft::families::ling {

Result<Config> LingAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("norm_head", false));
    WEFT_ASSIGN(const int64_t shared, config.IntOr({"num_shared_experts"}, 0, 64, 0));
    return config.With(Json{{"n_shared_experts", shared}});
}

constexpr Rule kLingRules[] = {
    {"attn_qkv", "attention.query_key_value", Form::kLinear},
    {"attn_output", "attention.dense", Form::kLinear},
    {"attn_q_norm", "attention.query_layernorm", Form::kNorm},
    {"attn_k_norm", "attention.key_layernorm", Form::kNorm},
    {"exp_probs_b.bias", "mlp.gate.expert_bias", Form::kVector, false},
};

Result<Config> Ling3Adjust(const Config& config) {
    for (const char* key : {"no_kda_lora", "kda_safe_gate", "rope_interleave"}) {
        WEFT_TRY(config.MustBe(key, true));
    }
    constexpr std::string_view kGates = "gated_attention_proj_granularity_type";
    WEFT_TRY(config.MustBe(kGates, "head_wise"));
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, 4096));
    WEFT_ASSIGN(const int64_t usual, config.NeedInt({"head_dim"}, 1, 1024));
    WEFT_ASSIGN(const int64_t dim, config.IntOr({"linear_head_dim"}, 1, 1024, usual));
    WEFT_ASSIGN(const int64_t taps, config.NeedInt({"short_conv_kernel_size"}, 2, 64));
    Json over = {
        {"linear_num_heads", heads}, {"linear_head_dim", dim}, {"linear_conv_kernel_dim", taps}};
    WEFT_TRY(TakeRenamed(config, over));
    if (config.Has("moe_shared_expert_intermediate_size")) {
        over["shared_expert_intermediate_size"] =
            config.json()["moe_shared_expert_intermediate_size"];
    }
    if (!config.Has("layer_types")) {
        // The last layer of each group has attention, and so do those after the last whole group.
        WEFT_ASSIGN(const int64_t group, config.NeedInt({"layer_group_size"}, 1, 4096));
        over["layer_types"] = Json::array();
        for (int64_t layer = 0; layer < layers; ++layer) {
            const bool attends = (layer + 1) % group == 0 || layer >= layers / group * group;
            over["layer_types"].push_back(attends ? "full_attention" : "linear_attention");
        }
    }
    return WithDenseLayers(config.With(over));
}

// Limits of gated units, one per layer; null: none.
Status WriteUnitLimits(const Config& config, MetaWriter& meta, std::string_view from,
                       std::string_view key) {
    if (!config.Has(from)) return {};
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    std::vector<float> limits;
    for (const Json& limit : config.json()[from]) {
        if (!limit.is_null() && !limit.is_number()) {
            return config.Corrupt(from, "a list of numbers and null");
        }
        limits.push_back(limit.is_null() ? 0.0f : limit.get<float>());
    }
    limits.resize(static_cast<size_t>(layers));
    meta.F32s(key, limits);
    return {};
}

Status Ling3Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(KdaMeta(config, meta));
    WEFT_ASSIGN(const double floor, config.NeedF64({"kda_lower_bound"}));
    if (!(floor < 0 && floor > -100)) {
        return config.Corrupt("kda_lower_bound", "a number from -100 to below 0");
    }
    meta.Bool("kda.safe_gate", true);
    meta.F32("kda.gate_lower_bound", floor);
    WEFT_TRY(WriteUnitLimits(config, meta, "expert_swiglu_limit_list", "swiglu_clamp_exp"));
    WEFT_TRY(WriteUnitLimits(config, meta, "share_expert_swiglu_limit_list", "swiglu_clamp_shexp"));
    return WriteExperts(config, meta, "moe_intermediate_size", "sigmoid");
}

// f_proj and g_proj are full matrices; attention's g_proj has one row per head.
Status Ling3Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const std::vector<bool> kda, LayersOfType(assembly.config(), "linear_attention"));
    const bool has_state = kda[static_cast<size_t>(layer)];
    const std::string module = prefix + "attention.";
    WEFT_ASSIGN(MatrixPtr gates, assembly.Linear(module + "g_proj"));
    if (gates == nullptr) return assembly.Missing(module + "g_proj.weight");
    assembly.Add(Assembly::Block(layer, has_state ? "ssm_g_a.weight" : "attn_gate.weight"),
                 std::move(gates));
    if (has_state) return KdaLayer(assembly, layer, module, 1);
    return SplitKvB(assembly, layer, module + "kv_b_proj");
}

constexpr Rule kLing3AttentionRules[] = {
    {"attn_q", "attention.q_proj", Form::kLinear, false},
    {"attn_q_a", "attention.q_a_proj", Form::kLinear, false},
    {"attn_q_a_norm", "attention.q_a_layernorm", Form::kNorm, false},
    {"attn_q_b", "attention.q_b_proj", Form::kLinear, false},
    {"attn_kv_a_mqa", "attention.kv_a_proj_with_mqa", Form::kLinear, false},
    {"attn_kv_a_norm", "attention.kv_a_layernorm", Form::kNorm, false},
    {"attn_output", "attention.dense", Form::kLinear},
};
constexpr Rule kLing3KdaRules[] = {
    {"attn_k", "attention.k_proj", Form::kLinear, false},
    {"attn_v", "attention.v_proj", Form::kLinear, false},
    {"ssm_f_a", "attention.f_proj", Form::kLinear, false},
    {"ssm_beta", "attention.b_proj", Form::kLinear, false},
    {"ssm_norm.weight", "attention.o_norm.weight", Form::kVector, false},
    {"exp_probs_b.bias", "mlp.gate.expert_bias", Form::kVector, false},
};

constexpr Family kFolders[] = {
    {.model_type = "sarvam_moe",  // Ling 2's tensors; transformers' keys
     .architecture = "bailingmoe2",
     .rules = {kPreNormRules, kLingRules, kMoeRules, kSharedExpertsRules},
     .gating = "sigmoid",
     .routing = kGroupRouting,
     .defaults = R"({"max_position_embeddings": 131072, "rope_theta": 8000000.0,
                     "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 6,
                     "first_k_dense_replace": 1, "moe_intermediate_size": 1024, "n_group": 1,
                     "topk_group": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": true})",
     .rope = {.partial = true},
     .embedding = "word_embeddings"},
    {.model_type = "bailing_moe",
     .architecture = "bailingmoe2",
     .rules = {kPreNormRules, kLingRules, kMoeRules, kSharedExpertsRules},
     .gating = "sigmoid",
     .routing = "n_group topk_group norm_topk_prob routed_scaling_factor score_function",
     .adjust = LingAdjust,
     .defaults = R"({"norm_topk_prob": true, "partial_rotary_factor": 0.5})",
     .rope = {.partial = true},
     .embedding = "word_embeddings",
     .draft_head = &kFinalNormDraftHead},
    {.model_type = "bailing_hybrid",
     .architecture = "bailingmoe3",
     .rules = {kPreNormRules, kLing3AttentionRules, kLing3KdaRules, kMoeRules, kSharedExpertsRules},
     .meta = Ling3Meta,
     .routing = kGroupRouting,
     .layer = Ling3Layer,
     .adjust = Ling3Adjust,
     .defaults = R"({"max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "head_dim": 128,
                     "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
                     "v_head_dim": 128, "num_experts": 512, "n_shared_experts": 1,
                     "num_experts_per_tok": 8, "moe_intermediate_size": 768,
                     "first_k_dense_replace": 2, "n_group": 8, "topk_group": 4,
                     "routed_scaling_factor": 2.5, "norm_topk_prob": true,
                     "rope_theta": 6000000.0, "kda_lower_bound": -5.0,
                     "short_conv_kernel_size": 4, "layer_group_size": 6})",
     .embedding = "word_embeddings",
     .more_tensors = "attn_k_b.weight attn_v_b.weight attn_gate.weight ssm_conv1d_q.weight"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"bailingmoe2", "Ling 2, Ring 2",
                "normed heads, partial RoPE, leading dense layers, groups of experts", "ling2"},
     .build = NormedHeadLayers,
     .experts = true,
     .traits = {.draft_head = true, .gate_score = GateScore::kSigmoid}},
    {.family =
         {"bailingmoe3", "Ling 3, Ring 3",
          "Kimi Delta Attention, gated latent attention, leading dense layers, groups of experts",
          "ling3"},
     .build = KimiDeltaLayers,
     .experts = true,
     .traits = {.limits = true,
                .gate_score = GateScore::kSigmoid,
                .recurrent = Recurrent::Kind::kKimiDelta}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::ling
