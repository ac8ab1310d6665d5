// Hunyuan, dense and with experts (Tencent 2025): query and key heads are normed after RoPE.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildHunyuan(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden, head_dim = b.hyper().head_dim;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", false), false);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", false), false);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a =
            b.Attention(b.Norm(q, "attn_q_norm", head_dim), b.Norm(k, "attn_k_norm", head_dim), v);
        x = b.Add(x, b.FromHeads(a, "attn_output"));

        x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", hidden)));
    }
    return x;
}

}  // namespace weft::model
