// GLM-4.5 and later with experts (Zhipu AI 2025), and Solar-Open (Upstage 2026): half of a head is
// rotated, heads are normed if the file says so, and routing is as in DeepSeek-V3.
#include "families/family.h"

namespace weft::families::glm4_moe {

// All layers have experts, but the width of a dense MLP is still a required key.
Result<Config> SolarAdjust(const Config& config) {
    if (config.Has("intermediate_size")) return config;
    WEFT_ASSIGN(const int64_t ffn, config.NeedInt({"moe_intermediate_size"}, 1, 1 << 20));
    const Json json = {{"intermediate_size", ffn}};
    return config.With(json);
}

constexpr Rule kGlmRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"attn_q_norm", "self_attn.q_norm", Form::kNorm, false},
    {"attn_k_norm", "self_attn.k_norm", Form::kNorm, false},
};

constexpr Family kFolders[] = {
    {.model_type = "glm4_moe",
     .also = "glm4v_moe glm4v_moe_text",
     .architecture = "glm4moe",
     .rules = {kGlmRules, kAttentionRules, kMoeRules, kSharedExpertsRules},
     .gating = "sigmoid",
     .routing = kGroupRouting,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "partial_rotary_factor": 0.5, "norm_topk_prob": true,
                     "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8,
                     "first_k_dense_replace": 1, "moe_intermediate_size": 1408})",
     .rope = {.partial = true, .mrope = true},
     .draft_head = &kDeepseekDraftHead},
    {.model_type = "solar_open",
     .architecture = "glm4moe",
     .rules = {kGlmRules, kAttentionRules, kMoeRules, kSharedExpertsRules},
     .gating = "sigmoid",
     .routing = kGroupRouting,
     .adjust = SolarAdjust,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "rope_theta": 1000000.0, "head_dim": 128, "num_key_value_heads": 8,
                     "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8,
                     "moe_intermediate_size": 1280, "norm_topk_prob": true, "n_group": 1,
                     "topk_group": 1, "routed_scaling_factor": 1.0})"},
};

ValueId BuildGlm4Moe(Builder& b, ValueId x) {
    const auto attend = [&](ValueId h) {
        return NormedAttention(b, h, b.Has("attn_q_norm.weight"));
    };
    return PreNormLayers(b, x, attend, "post_attention_norm");
}

constexpr Architecture kArchitectures[] = {
    {.family = {"glm4moe", "GLM 4.5 to 4.7, 4.5V (text), Solar-Open",
                "normed heads, partial RoPE, leading dense layers", "glm4moe, glm4vMoe, solarOpen"},
     .build = BuildGlm4Moe,
     .experts = true,
     .traits = {.draft_head = true, .gate_score = GateScore::kSigmoid}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::glm4_moe
