// StarCoder 2 (Lozhkov et al. 2024): GPT's layers with RoPE and windows.
#include "families/family.h"

namespace weft::families::starcoder2 {

// GGUF files do not state the window, which all published models have.
Status Starcoder2Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta, "gelu_pytorch_tanh"));
    if (!config.Has("sliding_window")) meta.Int("attention.sliding_window", 0);
    return WindowEverywhere(config, meta);
}

constexpr Rule kStarcoder2Rules[] = {
    {"ffn_up", "mlp.c_fc", Form::kLinear},
    {"ffn_down", "mlp.c_proj", Form::kLinear},
};

constexpr Family kFolders[] = {
    {.model_type = "starcoder2",
     .architecture = "starcoder2",
     .rules = {kPreNormRules, kAttentionRules, kStarcoder2Rules},
     .meta = Starcoder2Meta,
     .adjust = NoRmsNorms,
     .defaults = R"({"norm_epsilon": 1e-5, "use_bias": true, "num_key_value_heads": 2,
                     "tie_word_embeddings": true})",
     .layer_norm = "norm_epsilon",
     .more_tensors = "attn_norm.bias ffn_norm.bias output_norm.bias attn_q.bias?use_bias "
                     "attn_k.bias?use_bias attn_v.bias?use_bias attn_output.bias?use_bias "
                     "ffn_up.bias?use_bias ffn_down.bias?use_bias"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"starcoder2", "StarCoder 2",
                "LayerNorm with biases, windows, MLPs of GELU without a gate", "starcoder2"},
     .build = GptLayers,
     .traits = {.window = 4096, .norms = Norms::kLayer, .ungated = Ungated::kGeluTanh}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::starcoder2
