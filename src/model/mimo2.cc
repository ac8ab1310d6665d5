// MiMo-V2-Flash (Xiaomi 2025): values have fewer columns than keys and are scaled; windowed layers
// have sinks, and their own number of KV heads and RoPE base.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildMimo2(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) {
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", false), false);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", false), false);
        const ValueId v = b.Scale(b.ToKvHeads(h, "attn_v", false), b.hyper().value_scale);
        return b.FromHeads(b.Attention(q, k, v), "attn_output");
    });
}

}  // namespace weft::model
