// gpt-oss (OpenAI 2025): every other layer has a window, each head a sink, projections have biases,
// and experts a clamped SwiGLU.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildGptOss(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", true), false);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", true), false);
        const ValueId v = b.ToKvHeads(h, "attn_v", true);
        x = b.Add(x, b.FromHeads(b.Attention(q, k, v), "attn_output"));

        x = b.Add(x, b.Mlp(b.Norm(x, "post_attention_norm", b.hyper().hidden)));
    }
    return x;
}

}  // namespace weft::model
