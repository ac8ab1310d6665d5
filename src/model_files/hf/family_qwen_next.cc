// Qwen3-Next, Qwen 3.5 and OLMo-Hybrid: layers with recurrent state, and attention layers.
#include <algorithm>
#include <cmath>

#include "model_files/hf/delta_net.h"

namespace weft::model_files::hf {

namespace {

// ---- config.json --------------------------------------------------------------------------------

// ---- Tensors ------------------------------------------------------------------------------------

Status NextLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const std::vector<bool> recurrent, RecurrentLayers(assembly.config()));
    // A draft head, after the layers, has attention.
    if (layer >= static_cast<int64_t>(recurrent.size())) return {};
    const bool has = assembly.Has(prefix + "linear_attn.conv1d.weight");
    if (has != recurrent[static_cast<size_t>(layer)]) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: layer {} {} the tensors of a linear_attention layer, against "
                         "config.json",
                         assembly.folder(), layer, has ? "has" : "lacks");
    }
    if (!has) return {};
    const bool together = assembly.HasLinear(prefix + "linear_attn.in_proj_ba");
    return AddDeltaNet(assembly, layer, prefix,
                       together ? DeltaForm::kTogether : DeltaForm::kByKind);
}

// ---- Names for adapters
// --------------------------------------------------------------------------

// ---- OLMo-Hybrid --------------------------------------------------------------------------------

// In released models rope_parameters, or its base, is null: attention has no positions.
Result<Config> OlmoHybridAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, 4096));
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const int64_t key_heads, config.IntOr({"linear_num_key_heads"}, 1, 4096, heads));
    WEFT_ASSIGN(const int64_t values, config.IntOr({"linear_num_value_heads"}, 1, 4096, heads));
    const int64_t usual = hidden * 3 / 4 / key_heads;
    WEFT_ASSIGN(const int64_t key_dim, config.IntOr({"linear_key_head_dim"}, 1, 1024, usual));
    WEFT_ASSIGN(const int64_t value_dim,
                config.IntOr({"linear_value_head_dim"}, 1, 1024, 2 * key_dim));
    WEFT_ASSIGN(const Config rope, config.Sub({"rope_parameters"}));
    Json over = {{"linear_num_key_heads", key_heads},
                 {"linear_num_value_heads", values},
                 {"linear_key_head_dim", key_dim},
                 {"linear_value_head_dim", value_dim},
                 {"rotates", rope.Has("rope_theta")}};
    if (!rope.Has("rope_theta")) over["rope_parameters"] = nullptr;
    return config.With(over);
}

Status OlmoHybridMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(DeltaNetMeta(config, meta));
    WEFT_ASSIGN(const bool rotates, config.BoolOr({"rotates"}, false));
    meta.Bool("rope.scaling.finetuned", rotates);
    WEFT_ASSIGN(const bool doubles, config.BoolOr({"linear_allow_neg_eigval"}, true));
    meta.Bool("ssm.allow_neg_eigval", doubles);
    meta.F32("ssm.norm_rms_epsilon", 1e-5);
    return {};
}

// One norm is before the MLP in layers with state, and after attention in others. Its name in
// published folders differs from that of transformers.
Status OlmoHybridLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const std::vector<bool> recurrent, RecurrentLayers(assembly.config()));
    const bool has = recurrent[static_cast<size_t>(layer)];
    std::string name = prefix + "feedforward_layer_norm.weight";
    if (!assembly.Has(name)) name = prefix + "post_attention_layernorm.weight";
    WEFT_ASSIGN(MatrixPtr norm, assembly.Checked(assembly.Column(name), name, 0));
    assembly.AddVector(
        Assembly::Block(layer, has ? "ffn_norm.weight" : "post_attention_norm.weight"),
        std::move(norm));
    return has ? AddDeltaNet(assembly, layer, prefix, DeltaForm::kSeparate) : Status();
}

constexpr Rule kOlmoHybridRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm, false},
    {"attn_norm", "attention_layer_norm", Form::kNorm, false},
    {"post_ffw_norm", "post_feedforward_layernorm", Form::kNorm, false},
    {"ssm_norm.weight", "linear_attn.o_norm.weight", Form::kVector, false},
};

// ---- Tables -------------------------------------------------------------------------------------

constexpr Rule kNextRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"ssm_norm.weight", "linear_attn.norm.weight", Form::kVector, false},
};
constexpr Rule kNextAttentionRules[] = {
    {"attn_q", "self_attn.q_proj", Form::kLinear, false},
    {"attn_k", "self_attn.k_proj", Form::kLinear, false},
    {"attn_v", "self_attn.v_proj", Form::kLinear, false},
    {"attn_output", "self_attn.o_proj", Form::kLinear, false},
    {"attn_q_norm", "self_attn.q_norm", Form::kNorm, false},
    {"attn_k_norm", "self_attn.k_norm", Form::kNorm, false},
};
constexpr DraftHeadNames kNextDraftHead = {
    "fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", true, "mtp."};

constexpr Family kNextFamilies[] = {
    {.model_type = "olmo_hybrid",
     .architecture = "olmo-hybrid",
     .rules = {kOlmoHybridRules, kNextAttentionRules, kMlpRules},
     .meta = OlmoHybridMeta,
     .layer = OlmoHybridLayer,
     .adapted = SeparateParts,
     .adjust = OlmoHybridAdjust,
     .defaults = R"({"max_position_embeddings": 65536, "linear_conv_kernel_dim": 4,
                     "linear_allow_neg_eigval": true})",
     .more_tensors = "ssm_conv1d.weight"},
    {.model_type = "qwen3_next",
     .architecture = "qwen3next",
     .rules = {kNextRules, kNextAttentionRules, kMoeRules, kSharedExpertRules},
     .meta = DeltaNetMeta,
     .routing = "norm_topk_prob",
     .layer = NextLayer,
     .adapted = TogetherParts,
     .norm_add = 1,
     .defaults = R"({"max_position_embeddings": 32768, "head_dim": 256, "num_experts": 512,
                    "num_experts_per_tok": 10, "moe_intermediate_size": 512,
                    "shared_expert_intermediate_size": 512, "norm_topk_prob": true,
                    "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4,
                    "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                    "linear_num_key_heads": 16, "linear_num_value_heads": 32,
                    "intermediate_size": 5632})",
     .rope = {.partial = true},
     .draft_head = &kNextDraftHead,
     .draft_heads = 1,
     .more_tensors = "attn_output.bias?attention_bias ssm_conv1d.weight ssm_ba.weight"},
    {.model_type = "qwen3_5",
     .also = "qwen3_5_text",
     .architecture = "qwen35",
     .rules = {kNextRules, kNextAttentionRules, kMlpRules},
     .meta = DeltaNetMeta,
     .layer = NextLayer,
     .adapted = ByKindParts,
     .norm_add = 1,
     .defaults = R"({"max_position_embeddings": 32768, "head_dim": 256,
                    "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4,
                    "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                    "linear_num_key_heads": 16, "linear_num_value_heads": 32})",
     .rope = {.partial = true, .mrope = true},
     .draft_head = &kNextDraftHead,
     .more_tensors = "attn_output.bias?attention_bias ssm_conv1d.weight"},
    {.model_type = "qwen3_5_moe",
     .also = "qwen3_5_moe_text",
     .architecture = "qwen35moe",
     .rules = {kNextRules, kNextAttentionRules, kMoeRules, kSharedExpertRules},
     .meta = DeltaNetMeta,
     .layer = NextLayer,
     .adapted = ByKindParts,
     .norm_add = 1,
     .defaults = R"({"max_position_embeddings": 32768, "head_dim": 256, "num_experts": 256,
                    "num_experts_per_tok": 8, "moe_intermediate_size": 512,
                    "shared_expert_intermediate_size": 512, "norm_topk_prob": true,
                    "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4,
                    "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                    "linear_num_key_heads": 16, "linear_num_value_heads": 32})",
     .rope = {.partial = true, .mrope = true},
     .draft_head = &kNextDraftHead,
     .more_tensors = "attn_output.bias?attention_bias ssm_conv1d.weight"},
};

}  // namespace

extern const std::span<const Family> kQwenNextModels = kNextFamilies;

}  // namespace weft::model_files::hf
