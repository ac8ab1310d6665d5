// MiniMax-M2 (MiniMax 2025): q and k are each normed over all heads, half of a head is rotated, and
// all layers have experts, routed by sigmoids with a bias.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildMiniMaxM2(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const auto [q, k] =
            b.NormHeads({b.ToHeads(h, "attn_q", false), b.ToKvHeads(h, "attn_k", false)});
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
        x = b.Add(x, b.FromHeads(a, "attn_output"));

        x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", b.hyper().hidden)));
    }
    return x;
}

}  // namespace weft::model
