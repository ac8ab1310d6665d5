// GLM-4.5 and later with experts (Zhipu AI 2025): half of a head is rotated, heads are normed if
// the file says so, and routing is as in DeepSeek-V3. Seed-OSS (ByteDance 2025) is the same block,
// dense, with fully rotated heads.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildGlm4Moe(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t head_dim = b.hyper().head_dim;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        ValueId q = b.ToHeads(h, "attn_q", false);
        ValueId k = b.ToKvHeads(h, "attn_k", false);
        if (b.Has("attn_q_norm.weight")) {
            q = b.Norm(q, "attn_q_norm", head_dim);
            k = b.Norm(k, "attn_k_norm", head_dim);
        }
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
        x = b.Add(x, b.FromHeads(a, "attn_output"));

        x = b.Add(x, b.Mlp(b.Norm(x, "post_attention_norm", b.hyper().hidden)));
    }
    return x;
}

}  // namespace weft::model
