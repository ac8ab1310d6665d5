// GLM-4-0414 (Zhipu AI 2025), dense: norms before and after attention and MLP, and RoPE that
// rotates neighboring pairs of a part of each head.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildGlm4(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId a = RotatedAttention(b, b.Norm(x, "attn_norm", hidden), true);
        x = b.Add(x, b.Norm(a, "post_attention_norm", hidden));
        const ValueId m = b.Mlp(b.Norm(x, "ffn_norm", hidden));
        x = b.Add(x, b.Norm(m, "post_ffw_norm", hidden));
    }
    return x;
}

namespace {

constexpr Architecture kGlm4Table[] = {
    {.family = {"glm4", "GLM 4 (0414: 9B, 32B)", "norms on both sides, partial RoPE", "glm4"},
     .build = BuildGlm4},
};

}  // namespace

extern const std::span<const Architecture> kGlm4Family = kGlm4Table;

}  // namespace weft::model
