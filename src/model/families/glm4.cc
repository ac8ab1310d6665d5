// GLM-4 (GLM team 2024): RoPE that rotates neighboring pairs of a part of each head. GLM-4-0414
// (Zhipu AI 2025) has norms before and after attention and MLP. In files of GLM-4.1V, which have
// M-RoPE's sections, the rows of Q and K are reordered so that RoPE rotates halves.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildChatGlm(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) { return RotatedAttention(b, h, true); });
}

static ValueId BuildGlm4(Builder& b, ValueId x) {
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

namespace {

constexpr Architecture kGlm4Table[] = {
    {.family = {"chatglm", "GLM 4 (2024: 9B), GLM-Edge", "partial RoPE", "glm"},
     .build = BuildChatGlm},
    {.family = {"glm4", "GLM 4 (0414: 9B, 32B), GLM 4.1V (text)",
                "norms on both sides, partial RoPE", "glm4, glm4v"},
     .build = BuildGlm4},
};

}  // namespace

extern const std::span<const Architecture> kGlm4Family = kGlm4Table;

}  // namespace weft::model
