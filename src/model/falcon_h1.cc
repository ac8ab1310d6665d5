// Falcon-H1 (TII 2025): attention and a Mamba-2 layer side by side, of the same normed rows, then
// an MLP. Files have the muP multipliers in their weights.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildFalconH1(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", false), false);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", false), false);
        const ValueId a = b.Attention(q, k, b.ToKvHeads(h, "attn_v", false));
        const ValueId both = b.Add(b.FromHeads(a, "attn_output"), b.Mamba2(h));
        x = b.Add(x, both);

        // (llama.cpp's converter leaves out the end of the name.)
        const char* const part = b.Has("ffn_norm") ? "" : "weight";
        x = b.Add(x, b.Mlp(b.NormBy(x, "ffn_norm", part, b.hyper().hidden)));
    }
    return x;
}

}  // namespace weft::model
