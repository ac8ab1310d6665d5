// Gemma 1 (Gemma Team 2024): Llama's block with GeGLU, RoPE over halves and the embedding times
// sqrt(hidden). Gemma 2 (2024) and 3 (2025), text: as Gemma 1, with norms before and after
// attention and MLP. Gemma 2 has windows in every second layer and soft caps on scores and logits.
// Gemma 3 has windows in five of six layers, with another RoPE base, and normed query and key heads
// instead of the caps. Norm weights in GGUF files include the 1 that Gemma adds.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

namespace {

ValueId BuildLayers(Builder& b, ValueId x, bool normed_heads) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId a = NormedAttention(b, b.Norm(x, "attn_norm", hidden), normed_heads);
        x = b.Add(x, b.Norm(a, "post_attention_norm", hidden));
        const ValueId m = b.Mlp(b.Norm(x, "ffn_norm", hidden));
        x = b.Add(x, b.Norm(m, "post_ffw_norm", hidden));
    }
    return x;
}

}  // namespace

ValueId BuildGemma1(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) { return RotatedAttention(b, h, false); });
}

ValueId BuildGemma2(Builder& b, ValueId x) {
    return BuildLayers(b, x, false);
}

ValueId BuildGemma3(Builder& b, ValueId x) {
    return BuildLayers(b, x, true);
}

}  // namespace weft::model
