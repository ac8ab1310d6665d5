// Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024), dense: pre-norm, Q, K and V in one tensor, the
// MLP's gate and up in another, RoPE over the halves of a part of each head, LongRoPE for long
// contexts.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildPhi3(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", false), false);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", false), false);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        x = b.Add(x, b.FromHeads(b.Attention(q, k, v), "attn_output"));

        x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", b.hyper().hidden)));
    }
    return x;
}

}  // namespace weft::model
