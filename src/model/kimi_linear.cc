// Kimi Linear (Kimi team 2025): three of four layers are Kimi Delta Attention, the fourth is latent
// attention without positions; experts are as in DeepSeek-V3. Ling 3 (Ant 2026): attention has
// positions and a gate per head, and decays are bounded.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildKimiLinear(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        x = b.Add(x, b.HasState() ? b.KimiDelta(h) : b.LatentAttention(h));

        x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", hidden)));
    }
    return x;
}

}  // namespace weft::model
