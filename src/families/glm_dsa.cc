// GLM 5 (Z.ai 2026): DeepSeek-V3.2's layers, some of which share the choice of an earlier layer's
// indexer.
#include "families/family.h"
#include "model_files/hf/latent.h"

namespace weft::families::glm_dsa {

Status GlmDsaMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(LatentExpertsMeta(config, meta, "sigmoid"));
    WEFT_TRY(IndexerLayersMeta(config, meta));
    return CheckIndexerRope(config, true);
}

constexpr Family kFolders[] = {
    IndexedFamily("glm_moe_dsa", "glm-dsa", GlmDsaMeta,
                  R"({"max_position_embeddings": 202752, "rms_norm_eps": 1e-5, "kv_lora_rank": 512,
                      "q_lora_rank": 2048, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192,
                      "v_head_dim": 256, "n_routed_experts": 256, "n_shared_experts": 1,
                      "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
                      "first_k_dense_replace": 3, "n_group": 1, "topk_group": 1,
                      "routed_scaling_factor": 2.5, "norm_topk_prob": true, "index_topk": 2048,
                      "index_head_dim": 128, "index_n_heads": 32})"),
};
constexpr Architecture kArchitectures[] = {
    {.family = {"glm-dsa", "GLM 5 to 5.2",
                "sparse latent attention, layers that share a choice, leading dense layers",
                "glmDsa, glmDsaTop"},
     .build = LatentLayers,
     .experts = true,
     .traits = {.draft_head = true,
                .indexer = IndexerKind::kAlways,
                .late_indexers = true,
                .indexer_neighbours = true,
                .gate_score = GateScore::kSigmoid,
                .renormalises = false}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::glm_dsa
