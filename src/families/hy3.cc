// Hy3 (Tencent 2026): Qwen 3's layers with a sigmoid gate, leading dense layers and a shared
// expert.
#include "families/family.h"

namespace weft::families::hy3 {

// Renames Hy3's keys to the usual ones, and checks values that transformers assumes.
Result<Config> Hy3Adjust(const Config& config) {
    for (const std::string_view key : {"qk_norm", "route_norm", "moe_router_use_sigmoid"}) {
        WEFT_TRY(config.MustBe(key, true));
    }
    WEFT_ASSIGN(const int64_t ffn, config.NeedInt({"moe_intermediate_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const int64_t shared, config.NeedInt({"num_shared_experts"}, 0, 64));
    WEFT_ASSIGN(const double scale, config.NeedF64({"router_scaling_factor"}));
    const Json json = {{"shared_expert_intermediate_size", shared * ffn},
                       {"routed_scaling_factor", scale},
                       {"norm_topk_prob", true}};
    return WithDenseLayers(config.With(json));
}

// Hy3's tensors, under the names of published folders and under those of transformers' model.
constexpr Rule kHy3Rules[] = {
    {"ffn_gate_inp", "mlp.router.gate", Form::kRouter, false},
    {"exp_probs_b", "mlp.expert_bias", Form::kVector, false},
    {"exp_probs_b", "mlp.e_score_correction_bias", Form::kVector, false},
    {"ffn_%_shexp", "mlp.shared_mlp.%_proj", Form::kLinear, false},
    {"ffn_%_shexp", "mlp.shared_experts.%_proj", Form::kLinear, false},
};

constexpr Family kFolders[] = {
    {.model_type = "hy_v3",
     .architecture = "hy_v3",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kHy3Rules, kMoeRules},
     .gating = "sigmoid",
     .adjust = Hy3Adjust,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "rope_theta": 11158840.0, "head_dim": 128, "num_key_value_heads": 8,
                     "num_experts": 192, "num_experts_per_tok": 8, "num_shared_experts": 1,
                     "moe_intermediate_size": 1536, "router_scaling_factor": 2.826,
                     "first_k_dense_replace": 1})",
     .draft_head = &kFinalNormDraftHead},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"hy_v3", "Hy3", "normed heads, leading dense layers, a shared expert", "hyV3"},
     .build = NormedHeadLayers,
     .experts = true,
     .traits = {.draft_head = true, .gate_score = GateScore::kSigmoid}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::hy3
