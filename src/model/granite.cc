// Granite 3, dense (IBM 2024): Llama's block, with factors on the embedding, on what each half of a
// layer adds to the residual stream, on scores and on logits.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildGranite(Builder& b, ValueId x) {
    const float residual = b.hyper().residual_scale;
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", false), true);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", false), true);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.FromHeads(b.Attention(q, k, v), "attn_output");
        x = b.Add(x, b.Scale(a, residual));

        const ValueId m = b.Mlp(b.Norm(x, "ffn_norm", b.hyper().hidden));
        x = b.Add(x, b.Scale(m, residual));
    }
    return x;
}

}  // namespace weft::model
