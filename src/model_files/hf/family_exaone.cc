// EXAONE 4, K-EXAONE, GLM-4, GLM-4-0414 and the text part of GLM-4.1V.
#include <algorithm>

#include "model_files/hf/family.h"

namespace weft::model_files::hf {
namespace {

bool AllButEachFourth(int64_t layer) {
    return (layer + 1) % 4 != 0;
}

// ---- EXAONE -------------------------------------------------------------------------------------

Status Exaone4Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, kMostContext, 0));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    // With a window, only layers that have it rotate; without one, all layers do.
    if (window > 0 && std::ranges::find(types, "sliding_attention") == types.end()) {
        return config.Corrupt("sliding_window", "null, because no layer has sliding_attention");
    }
    return WriteWindow(config, meta, window, AllButEachFourth);
}

Result<Config> Exaone4Adjust(const Config& config) {
    return WithLayerTypes(config, 4);
}

// Renames its shared experts to the usual key.
Result<Config> ExaoneMoeAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t shared, config.NeedInt({"num_shared_experts"}, 0, 64));
    const Json over = {{"n_shared_experts", shared}};
    return WithLayerTypes(config.With(over), 4);
}

// ---- Tables -------------------------------------------------------------------------------------

constexpr Rule kExaoneMoeRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm},
    {"exp_probs_b.bias", "mlp.e_score_correction_bias", Form::kVector, false},
};
constexpr Rule kGlm4Rules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_self_attn_layernorm", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm},
    {"post_ffw_norm", "post_mlp_layernorm", Form::kNorm},
    {"ffn_up", "mlp.gate_up_proj", Form::kLinear},  // gate before up, as in GGUF
    {"ffn_down", "mlp.down_proj", Form::kLinear},
};

constexpr Rule kChatGlmRules[] = {
    {"ffn_up", "mlp.gate_up_proj", Form::kLinear},  // gate before up, as in GGUF
    {"ffn_down", "mlp.down_proj", Form::kLinear},
};

constexpr DraftHeadNames kExaoneDraftHead = {
    "fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", true, "mtp.", true, true};

constexpr Family kExaoneFamilies[] = {
    {.model_type = "exaone4",
     .architecture = "exaone4",
     .rules = {kPostNormRules, kAttentionRules, kQkNormRules, kMlpRules},
     .meta = Exaone4Meta,
     .adjust = Exaone4Adjust,
     .defaults = R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                     "sliding_window": 4096})"},
    {.model_type = "exaone_moe",
     .architecture = "exaone-moe",
     .rules = {kExaoneMoeRules, kAttentionRules, kQkNormRules, kMoeRules, kSharedExpertsRules},
     .meta = Exaone4Meta,
     .gating = "sigmoid",
     .routing = kGroupRouting,
     .adjust = ExaoneMoeAdjust,
     .defaults = R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                     "sliding_window": 4096, "first_k_dense_replace": 1, "num_experts": 64,
                     "num_experts_per_tok": 8, "num_shared_experts": 1, "norm_topk_prob": true,
                     "moe_intermediate_size": 1024, "routed_scaling_factor": 2.5, "n_group": 1,
                     "topk_group": 1})",
     .draft_head = &kExaoneDraftHead},
    {.model_type = "glm",
     .architecture = "chatglm",
     .rules = {kPreNormRules, kAttentionRules, kChatGlmRules},
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1.5625e-7,
                     "head_dim": 128, "num_key_value_heads": 2, "attention_bias": true,
                     "partial_rotary_factor": 0.5})",
     .rope = {.partial = true}},
    {.model_type = "glm4",
     .architecture = "glm4",
     .rules = {kGlm4Rules, kAttentionRules},
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1.5625e-7,
                     "head_dim": 128, "partial_rotary_factor": 0.5})",
     .rope = {.partial = true}},
    {.model_type = "glm4v",
     .also = "glm4v_text",
     .architecture = "glm4",
     .rules = {kGlm4Rules, kAttentionRules},
     .defaults = R"({"max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
                     "num_key_value_heads": 2})",
     .rope = {.partial = true, .mrope = true},
     .more_tensors = kQkvBiases},
};

}  // namespace

extern const std::span<const Family> kExaoneModels = kExaoneFamilies;

}  // namespace weft::model_files::hf
