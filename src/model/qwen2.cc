// Qwen2 and 2.5 (Yang et al. 2024): Llama's block with biases on Q, K and V, and RoPE over halves.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildQwen2(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", true), false);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", true), false);
        const ValueId v = b.ToKvHeads(h, "attn_v", true);
        x = b.Add(x, b.FromHeads(b.Attention(q, k, v), "attn_output"));

        x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", b.hyper().hidden)));
    }
    return x;
}

}  // namespace weft::model
