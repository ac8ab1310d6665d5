// DeepSeek-V2 and V3 (DeepSeek-AI 2024), R1, Kimi-K2: latent attention; some dense layers, then
// layers with routed experts and a shared one.
// In GLM 5 and DeepSeek-V3.2 an indexer chooses the positions that a row attends to.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildDeepSeek2(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        x = b.Add(x, b.LatentAttention(b.Norm(x, "attn_norm", b.hyper().hidden)));
        x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", b.hyper().hidden)));
    }
    return x;
}

}  // namespace weft::model
