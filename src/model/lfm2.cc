// LFM2, dense and with experts (Liquid AI 2025): most layers are gated short convolutions, the
// others attention with normed query and key heads. Routing uses sigmoids with a bias.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildLfm2(Builder& b, ValueId x) {
    const int64_t head_dim = b.hyper().head_dim;
    return PreNormLayers(b, x, [&](ValueId h) {
        if (b.HasState()) return b.ShortConv(h);
        const ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
        const ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
        return b.FromHeads(a, "attn_output");
    });
}

}  // namespace weft::model
