// DeepSeek-V2 and V3 (DeepSeek-AI 2024), R1, Kimi-K2 (and the text part of K2.5 to K2.7): latent
// attention; some dense layers, then layers with routed experts and a shared one. GLM 4.7 Flash,
// A.X K1 and Sarvam are the same; Youtu has no experts. In DeepSeek-V3.2 an indexer chooses the
// positions that a row attends to.
#include "families/family.h"
#include "model_files/hf/latent.h"

namespace weft::families::deepseek {

Status Deepseek2Meta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const std::string method, config.StringOr({"topk_method"}, ""));
    if (method != "greedy" && method != "group_limited_greedy") {
        return config.Corrupt("topk_method", "'greedy' or 'group_limited_greedy'");
    }
    return LatentExpertsMeta(config, meta, "softmax");
}

Status Deepseek3Meta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const std::string method, config.StringOr({"topk_method"}, ""));
    WEFT_ASSIGN(const int64_t groups, config.IntOr({"n_group"}, 0, kMostColumns, 1));
    if (method == "greedy" && groups > 1) {
        return config.Corrupt("topk_method", "'noaux_tc', because n_group is not 1");
    }
    return LatentExpertsMeta(config, meta, "sigmoid");
}

Status Deepseek32Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(LatentExpertsMeta(config, meta, "sigmoid"));
    WEFT_TRY(IndexerMeta(config, meta));  // in all layers
    return CheckIndexerRope(config, false);
}

constexpr Rule kAxK1Rules[] = {
    {"post_ffw_norm", "post_mlp_layernorm", Form::kNorm, false},
};

constexpr std::string_view kDeepseek3Defaults =
    R"({"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "n_group": 8,
        "topk_group": 4, "routed_scaling_factor": 2.5, "norm_topk_prob": true})";

constexpr Family kFolders[] = {
    // Weights of experts are not normalized.
    Like(LatentFamily(
             "deepseek_v2", Deepseek2Meta,
             R"({"max_position_embeddings": 2048, "n_routed_experts": 64, "n_shared_experts": 2,
                 "topk_method": "greedy"})"),
         [](Family& family) {
             family.routing = "n_group topk_group routed_scaling_factor";
             family.rope.reads_interleave = false;
         }),
    LatentFamily("deepseek_v3", Deepseek3Meta, kDeepseek3Defaults),
    LatentFamily("kimi_k2", Deepseek3Meta),
    LatentFamily("kimi_k25", Deepseek3Meta, kDeepseek3Defaults),
    LatentFamily("glm4_moe_lite", Deepseek3Meta,
                 R"({"max_position_embeddings": 202752, "rms_norm_eps": 1e-5, "kv_lora_rank": 512,
                     "q_lora_rank": 768, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192,
                     "v_head_dim": 256, "n_routed_experts": 64, "n_shared_experts": 1,
                     "num_experts_per_tok": 4, "moe_intermediate_size": 1536,
                     "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
                     "routed_scaling_factor": 1.8, "norm_topk_prob": true})",
                 WithDenseLayers),
    IndexedFamily("deepseek_v32", "deepseek32", Deepseek32Meta,
                  R"({"max_position_embeddings": 163840, "kv_lora_rank": 512, "q_lora_rank": 1536,
                      "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
                      "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
                      "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "n_group": 8,
                      "topk_group": 4, "routed_scaling_factor": 2.5, "norm_topk_prob": true,
                      "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64})"),
    // Layers with experts have a norm behind them.
    Like(
        LatentFamily("axk1", Deepseek3Meta,
                     R"({"max_position_embeddings": 32768, "kv_lora_rank": 512, "q_lora_rank": 1536,
                         "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
                         "n_routed_experts": 192, "n_shared_experts": 1, "num_experts_per_tok": 8,
                         "moe_intermediate_size": 2048, "first_k_dense_replace": 1, "n_group": 8,
                         "topk_group": 4, "routed_scaling_factor": 2.5, "norm_topk_prob": true})",
                     WithDenseLayers),
        [](Family& family) { family.rules[4] = kAxK1Rules; }),
    LatentFamily("sarvam_mla", Deepseek3Meta,
                 R"({"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
                     "v_head_dim": 128, "n_routed_experts": 128, "n_shared_experts": 1,
                     "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
                     "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
                     "routed_scaling_factor": 2.5, "norm_topk_prob": true})"),
    DenseLatentFamily(
        "youtu",
        R"({"max_position_embeddings": 131072, "kv_lora_rank": 512, "q_lora_rank": 1536,
            "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
            "tie_word_embeddings": true})"),
};
constexpr Architecture kArchitectures[] = {
    {.family = {"deepseek2",
                "DeepSeek V2 (and Lite), V3, R1, Kimi-K2 to K2.7 (text), GLM 4.7 Flash, Youtu, "
                "A.X K1, Sarvam",
                "latent attention, YaRN, leading dense layers, groups of experts, temperature",
                "deepseekV2, deepseekV3, deepseekV3Halves, kimiK2, youtu, axk1"},
     .build = LatentLayers,
     .experts = true,
     .traits = {.draft_head = true,
                .temperature = true,
                .renormalises = false,
                .sigmoid_if_biased = true}},
    {.family = {"deepseek32", "DeepSeek V3.2",
                "sparse latent attention, YaRN, leading dense layers, groups of experts",
                "deepseekV32, deepseekV32Top"},
     .build = LatentLayers,
     .experts = true,
     .traits = {.draft_head = true,
                .indexer = IndexerKind::kAlways,
                .gate_score = GateScore::kSigmoid,
                .renormalises = false}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::deepseek
