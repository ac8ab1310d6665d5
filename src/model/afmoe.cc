// Trinity (Arcee 2025): norms before and after attention and MLP, normed heads, an output gate for
// each column of attention, and RoPE in layers with a window alone.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildAfmoe(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden, head_dim = b.hyper().head_dim;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
        ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
        if (b.IsWindowed()) {
            q = b.Rope(q, false);
            k = b.Rope(k, false);
        }
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.GateHeads(b.Attention(q, k, v), h, program::RowGate::kSigmoid);
        x = b.Add(x, b.Norm(b.FromHeads(a, "attn_output"), "post_attention_norm", hidden));

        const ValueId y = b.Mlp(b.Norm(x, "ffn_norm", hidden));
        x = b.Add(x, b.Norm(y, "post_ffw_norm", hidden));
    }
    return x;
}

}  // namespace weft::model
