// Jais 2 (Inception 2025): GPT's layers with RoPE and MLPs of ReLU squared.
#include "families/family.h"

namespace weft::families::jais2 {

constexpr Family kFolders[] = {
    {.model_type = "jais2",
     .architecture = "jais2",
     .rules = {kPreNormRules, kAttentionRules, kUngatedMlpRules},
     .meta = WriteUngated,
     .adjust = PlainKeys,
     .defaults = R"({"max_position_embeddings": 8192, "hidden_act": "relu2",
                     "layer_norm_eps": 1e-5, "attention_bias": true, "mlp_bias": true})",
     .layer_norm = "layer_norm_eps",
     .more_tensors = "attn_norm.bias ffn_norm.bias output_norm.bias "
                     "attn_output.bias?attention_bias"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"jais2", "Jais 2", "LayerNorm with biases, MLPs of ReLU squared", "jais2"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer, .ungated = Ungated::kReluSquared}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::jais2
