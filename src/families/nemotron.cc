// Nemotron 3 and 4 (NVIDIA 2024), Minitron and Persimmon (Adept 2023): GPT's layers with partial
// RoPE and MLPs of ReLU squared.
#include "families/family.h"

namespace weft::families::nemotron {

Status NemotronDenseMeta(const Config& config, MetaWriter& meta) {
    return WriteCommon(config, meta, "relu2");
}

// As many heads of keys as of queries.
Result<Config> PersimmonAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, 4096));
    return NoRmsNorms(config.With(Json{{"num_key_value_heads", heads}}));
}

Status PersimmonLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    return assembly.AddHeadNorms(layer, prefix + "self_attn.");
}

constexpr Rule kPersimmonRules[] = {
    {"attn_output", "self_attn.dense", Form::kLinear},
    {"ffn_up", "mlp.dense_h_to_4h", Form::kLinear},
    {"ffn_down", "mlp.dense_4h_to_h", Form::kLinear},
};

constexpr Family kFolders[] = {
    {.model_type = "nemotron",
     .architecture = "nemotron",
     .rules = {kPreNormRules, kAttentionRules, kUngatedMlpRules},
     .meta = NemotronDenseMeta,
     .norm_add = 1,
     .adjust = NoRmsNorms,
     .defaults = R"({"norm_eps": 1e-5, "partial_rotary_factor": 0.5})",
     .rope = {.partial = true},
     .layer_norm = "norm_eps",
     .more_tensors = "attn_norm.bias ffn_norm.bias output_norm.bias "
                     "attn_output.bias?attention_bias"},
    {.model_type = "persimmon",
     .architecture = "nemotron",
     .rules = {kPreNormRules, kPersimmonRules},
     .qkv = {"self_attn.query_key_value"},
     .meta = WriteUngated,
     .layer = PersimmonLayer,
     .adjust = PersimmonAdjust,
     .defaults = R"({"max_position_embeddings": 16384, "hidden_act": "relu2",
                     "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
                     "qk_layernorm": true})",
     .rope = {.partial = true},
     .final_norm = "final_layernorm",
     .layer_norm = "layer_norm_eps",
     .more_tensors = "attn_q.weight attn_k.weight attn_v.weight attn_norm.bias ffn_norm.bias "
                     "output_norm.bias attn_q.bias attn_k.bias attn_v.bias attn_output.bias "
                     "ffn_up.bias ffn_down.bias attn_q_norm.weight?qk_layernorm "
                     "attn_q_norm.bias?qk_layernorm attn_k_norm.weight?qk_layernorm "
                     "attn_k_norm.bias?qk_layernorm"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"nemotron", "Nemotron 3, 4, Minitron, Persimmon",
                "LayerNorm with biases, partial RoPE, MLPs of ReLU squared, normed heads",
                "nemotron, persimmon"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer, .ungated = Ungated::kReluSquared}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::nemotron
