// Llama 1-3 (Touvron et al. 2023; Grattafiori et al. 2024): pre-norm, grouped-query attention with
// RoPE over neighbouring pairs (GGUF files carry Q and K permuted for that), SwiGLU.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildLlama(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", false), true);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", false), true);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        x = b.Add(x, b.FromHeads(b.Attention(q, k, v), "attn_output"));

        const ValueId m = b.Norm(x, "ffn_norm", b.hyper().hidden);
        const ValueId gate = b.ToFfn(m, "ffn_gate");
        const ValueId up = b.ToFfn(m, "ffn_up");
        x = b.Add(x, b.FromFfn(b.SwiGlu(gate, up), "ffn_down"));
    }
    return x;
}

}  // namespace weft::model
