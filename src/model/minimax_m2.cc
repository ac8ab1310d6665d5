// MiniMax-M2 (MiniMax 2025): q and k are each normed over all heads, half of a head is rotated, and
// all layers have experts, routed by sigmoids with a bias.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildMiniMaxM2(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) {
        const auto [q, k] =
            b.NormHeads({b.ToHeads(h, "attn_q", false), b.ToKvHeads(h, "attn_k", false)});
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
        return b.FromHeads(a, "attn_output");
    });
}

}  // namespace weft::model
