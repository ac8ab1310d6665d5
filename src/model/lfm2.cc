// LFM2, dense and with experts (Liquid AI 2025): most layers are gated short convolutions, the
// others attention with normed query and key heads. Routing uses sigmoids with a bias.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildLfm2(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden, head_dim = b.hyper().head_dim;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        if (b.HasState()) {
            x = b.Add(x, b.ShortConv(h));
        } else {
            const ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
            const ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
            const ValueId v = b.ToKvHeads(h, "attn_v", false);
            const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
            x = b.Add(x, b.FromHeads(a, "attn_output"));
        }

        x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", hidden)));
    }
    return x;
}

}  // namespace weft::model
