// Qwen3-Next and Qwen 3.5, dense and with experts (Qwen team 2025, 2026): three of four layers are
// gated delta nets, the fourth is attention with normed query and key heads, RoPE over a quarter of
// a head, and an output gate. The shared expert has a gate, too.
#include "families/family.h"
#include "model_files/hf/delta_net.h"

namespace weft::families::qwen_next {

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

constexpr Rule kNextRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"ssm_norm.weight", "linear_attn.norm.weight", Form::kVector, false},
};
constexpr DraftHeadNames kNextDraftHead = {
    "fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", true, "mtp."};

constexpr Family kQwen35 = {.model_type = "qwen3_5",
                            .also = "qwen3_5_text",
                            .architecture = "qwen35",
                            .rules = {kNextRules, kDeltaAttentionRules, kMlpRules},
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
                            .more_tensors = "attn_output.bias?attention_bias ssm_conv1d.weight"};
constexpr Family kFolders[] = {
    {.model_type = "qwen3_next",
     .architecture = "qwen3next",
     .rules = {kNextRules, kDeltaAttentionRules, kMoeRules, kSharedExpertRules},
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
    kQwen35,
    Like(kQwen35,
         [](Family& family) {
             family.model_type = "qwen3_5_moe";
             family.also = "qwen3_5_moe_text";
             family.architecture = "qwen35moe";
             family.rules = {kNextRules, kDeltaAttentionRules, kMoeRules, kSharedExpertRules};
             family.defaults =
                 R"({"max_position_embeddings": 32768, "head_dim": 256, "num_experts": 256,
                     "num_experts_per_tok": 8, "moe_intermediate_size": 512,
                     "shared_expert_intermediate_size": 512, "norm_topk_prob": true,
                     "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4,
                     "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                     "linear_num_key_heads": 16, "linear_num_value_heads": 32})";
         }),
};

ValueId BuildQwen3Next(Builder& b, ValueId x) {
    const auto attend = [&](ValueId h) {
        return b.HasState() ? b.GatedDeltaNet(h) : b.GatedAttention(h);
    };
    return PreNormLayers(b, x, attend, "post_attention_norm");
}

constexpr Architecture kArchitectures[] = {
    {.family = {"qwen35", "Qwen 3.5, 3.6, Qwen3.8-27B (dense, text)",
                "gated delta nets, gated attention, partial RoPE", "qwen35"},
     .build = BuildQwen3Next,
     .traits = {.draft_head = true, .recurrent = Recurrent::Kind::kDeltaNet, .cycles = true}},
    {.family = {"qwen35moe", "Qwen 3.5, 3.6 with experts (text)",
                "the same, with a gated shared expert", "qwen35moe"},
     .build = BuildQwen3Next,
     .experts = true,
     .traits = {.draft_head = true, .recurrent = Recurrent::Kind::kDeltaNet, .cycles = true}},
    {.family = {"qwen3next", "Qwen3-Next, Qwen3-Coder-Next",
                "gated delta nets, gated attention, partial RoPE, a gated shared expert",
                "qwen3next, qwen3nextMoe"},
     .build = BuildQwen3Next,
     .experts = true,
     .traits = {.draft_head = true, .recurrent = Recurrent::Kind::kDeltaNet}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::qwen_next
