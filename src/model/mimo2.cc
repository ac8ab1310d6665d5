// MiMo-V2-Flash (Xiaomi 2025): values have fewer columns than keys and are scaled; windowed layers
// have sinks, and their own number of KV heads and RoPE base.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildMimo2(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", false), false);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", false), false);
        const ValueId v = b.Scale(b.ToKvHeads(h, "attn_v", false), b.hyper().value_scale);
        x = b.Add(x, b.FromHeads(b.Attention(q, k, v), "attn_output"));

        x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", b.hyper().hidden)));
    }
    return x;
}

}  // namespace weft::model
