// GLM-4 (GLM team 2024): RoPE that rotates neighboring pairs of a part of each head. GLM-4-0414
// (Zhipu AI 2025) has norms before and after attention and MLP. In files of GLM-4.1V, which have
// M-RoPE's sections, the rows of Q and K are reordered so that RoPE rotates halves.
#include "families/family.h"

namespace weft::families::glm4 {

constexpr Rule kGlm4Rules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_self_attn_layernorm", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm},
    {"post_ffw_norm", "post_mlp_layernorm", Form::kNorm},
};
constexpr Rule kFusedMlpRules[] = {
    {"ffn_up", "mlp.gate_up_proj", Form::kLinear},  // gate before up, as in GGUF
    {"ffn_down", "mlp.down_proj", Form::kLinear},
};

constexpr Family kFolders[] = {
    {.model_type = "glm",
     .architecture = "chatglm",
     .rules = {kPreNormRules, kAttentionRules, kFusedMlpRules},
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1.5625e-7,
                     "head_dim": 128, "num_key_value_heads": 2, "attention_bias": true,
                     "partial_rotary_factor": 0.5})",
     .rope = {.partial = true}},
    {.model_type = "glm4",
     .architecture = "glm4",
     .rules = {kGlm4Rules, kFusedMlpRules, kAttentionRules},
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1.5625e-7,
                     "head_dim": 128, "partial_rotary_factor": 0.5})",
     .rope = {.partial = true}},
    {.model_type = "glm4v",
     .also = "glm4v_text",
     .architecture = "glm4",
     .rules = {kGlm4Rules, kFusedMlpRules, kAttentionRules},
     .defaults = R"({"max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
                     "num_key_value_heads": 2})",
     .rope = {.partial = true, .mrope = true},
     .more_tensors = kQkvBiases},
};

ValueId BuildChatGlm(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) { return RotatedAttention(b, h, true); });
}

ValueId BuildGlm4(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId a = RotatedAttention(b, b.Norm(x, "attn_norm", hidden), !b.hyper().sections);
        x = b.Add(x, b.Norm(a, "post_attention_norm", hidden));
        const ValueId m = b.Mlp(b.Norm(x, "ffn_norm", hidden));
        x = b.Add(x, b.Norm(m, "post_ffw_norm", hidden));
    }
    return x;
}

constexpr Architecture kArchitectures[] = {
    {.family = {"chatglm", "GLM 4 (2024: 9B), GLM-Edge", "partial RoPE", "glm"},
     .build = BuildChatGlm},
    {.family = {"glm4", "GLM 4 (0414: 9B, 32B), GLM 4.1V (text)",
                "norms on both sides, partial RoPE", "glm4, glm4v"},
     .build = BuildGlm4},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::glm4
