// Granite 3 and 4 (IBM 2024, 2025), dense and with experts: Llama's block, with factors on the
// embedding, on the outputs of attention and MLP, on scores and on logits. Most layers of Granite 4
// H are Mamba-2, and its attention has no positions.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildGranite(Builder& b, ValueId x) {
    const auto rotated = [&](ValueId heads) {
        return b.hyper().rotates ? b.Rope(heads, true) : heads;
    };
    const auto attend = [&](ValueId h) {
        const ValueId q = rotated(b.ToHeads(h, "attn_q", false));
        const ValueId k = rotated(b.ToKvHeads(h, "attn_k", false));
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        return b.FromHeads(b.Attention(q, k, v), "attn_output");
    };
    const float residual = b.hyper().residual_scale;
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        x = b.Add(x, b.Scale(b.HasState() ? b.Mamba2(h) : attend(h), residual));

        const ValueId m = b.Mlp(b.Norm(x, "ffn_norm", b.hyper().hidden));
        x = b.Add(x, b.Scale(m, residual));
    }
    return x;
}

}  // namespace weft::model
