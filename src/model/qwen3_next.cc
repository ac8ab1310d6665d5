// Qwen3-Next and Qwen 3.5, dense and with experts (Qwen team 2025, 2026): three of four layers are
// gated delta nets, the fourth is attention with normed query and key heads, RoPE over a quarter of
// a head, and an output gate. The shared expert has a gate, too.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildQwen3Next(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        x = b.Add(x, b.HasState() ? b.GatedDeltaNet(h) : b.GatedAttention(h));

        x = b.Add(x, b.Mlp(b.Norm(x, "post_attention_norm", hidden)));
    }
    return x;
}

}  // namespace weft::model
