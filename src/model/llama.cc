// Llama 1-3 (Touvron et al. 2023; Grattafiori et al. 2024): pre-norm, grouped-query attention with
// RoPE over neighboring pairs (Q and K in GGUF files are permuted for that), SwiGLU. Mixtral (Jiang
// et al. 2024) is the same with experts.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildLlama(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) {
        const ValueId q = b.Rope(b.Tempered(b.ToHeads(h, "attn_q", false)), true);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", false), true);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        return b.FromHeads(b.Attention(q, k, v), "attn_output");
    });
}

}  // namespace weft::model
