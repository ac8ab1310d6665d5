// Seed-OSS (ByteDance 2025): Qwen 2's block; the norm before the MLP is named after attention.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildSeedOss(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", false), false);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", false), false);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        x = b.Add(x, b.FromHeads(b.Attention(q, k, v), "attn_output"));

        x = b.Add(x, b.Mlp(b.Norm(x, "post_attention_norm", b.hyper().hidden)));
    }
    return x;
}

}  // namespace weft::model
