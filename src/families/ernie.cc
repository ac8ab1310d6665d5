// ERNIE 4.5 (Baidu 2025), dense and with experts: Llama's layers.
#include "families/family.h"

namespace weft::families::ernie {

Status ErnieMoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    // llama.cpp does not load a file without this key.
    WEFT_ASSIGN(const int64_t step, config.NeedInt({"decoder_sparse_step"}, 1, 4096));
    meta.Int("interleave_moe_layer_step", step);
    return WriteExperts(config, meta, "moe_intermediate_size", "softmax");
}

Result<Config> ErnieMoeAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(const int64_t first, config.IntOr({"moe_layer_start_index"}, 0, 4096, 1));
    WEFT_ASSIGN(const int64_t last, config.IntOr({"moe_layer_end_index"}, -1, 4096, -1));
    WEFT_ASSIGN(const int64_t step, config.IntOr({"moe_layer_interval"}, 1, 4096, 1));
    WEFT_ASSIGN(const int64_t experts, config.NeedInt({"moe_num_experts"}, 1, 1 << 16));
    WEFT_ASSIGN(const int64_t used, config.NeedInt({"moe_k"}, 1, experts));
    WEFT_ASSIGN(const int64_t shared, config.IntOr({"moe_num_shared_experts"}, 0, 64, 0));
    WEFT_ASSIGN(const int64_t width, config.NeedInt({"moe_intermediate_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const double least, config.F64Or({"moe_norm_min"}, 1e-12));
    // The best softmax scores always exceed this, so the limit has no effect.
    if (!(least <= 1e-6)) return config.Corrupt("moe_norm_min", "at most 1e-6");
    if (last != -1 && last < layers - 1) {
        return config.Corrupt("moe_layer_end_index", "-1 or the last layer");
    }
    return config.With(Json{{"first_k_dense_replace", first},
                            {"decoder_sparse_step", step},
                            {"num_experts", experts},
                            {"num_experts_per_tok", used},
                            {"n_shared_experts", shared},
                            {"shared_expert_intermediate_size", shared * width},
                            {"norm_topk_prob", true}});
}

constexpr Rule kErnieBiasRules[] = {
    {"exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias", Form::kVector, false},
};

constexpr Family kFolders[] = {
    {.model_type = "ernie4_5",
     .architecture = "ernie4_5",
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "rope_theta": 500000.0, "head_dim": 128, "num_key_value_heads": 2,
                     "tie_word_embeddings": true})"},
    {.model_type = "ernie4_5_moe",
     .architecture = "ernie4_5-moe",
     .rules = {kPreNormRules, kAttentionRules, kErnieBiasRules, kMoeRules, kSharedExpertsRules},
     .meta = ErnieMoeMeta,
     .adjust = ErnieMoeAdjust,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "rope_theta": 500000.0, "num_key_value_heads": 4,
                     "moe_intermediate_size": 1536, "moe_num_experts": 64, "moe_k": 6,
                     "moe_num_shared_experts": 2, "tie_word_embeddings": true})",
     .more_tensors = "exp_probs_b.bias attn_q.bias?use_bias attn_k.bias?use_bias "
                     "attn_v.bias?use_bias attn_output.bias?use_bias ffn_gate.bias?use_bias "
                     "ffn_up.bias?use_bias ffn_down.bias?use_bias ffn_gate_shexp.bias?use_bias "
                     "ffn_up_shexp.bias?use_bias ffn_down_shexp.bias?use_bias "
                     "output.bias?use_bias"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"ernie4_5", "ERNIE 4.5 (dense)", "as llama", "ernie"}, .build = LlamaLayers},
    {.family = {"ernie4_5-moe", "ERNIE 4.5 with experts (text)",
                "leading dense layers, a shared expert", "ernieMoe, ernieMoeBiases"},
     .build = LlamaLayers,
     .experts = true},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::ernie
