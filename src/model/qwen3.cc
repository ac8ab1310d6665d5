// Qwen3, dense and with experts (Yang et al. 2025): no biases; each query and key head is
// RMS-normed before RoPE over halves; head_dim is explicit. The same block: Hy3 (Tencent 2026),
// with a sigmoid gate, leading dense layers and a shared expert; dots.llm1 (rednote 2025); MiniMax
// M3 (MiniMax 2026), with clamped SwiGLU and an indexer that chooses the blocks of positions that a
// row attends to.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildQwen3(Builder& b, ValueId x) {
    const int64_t head_dim = b.hyper().head_dim;
    return PreNormLayers(b, x, [&](ValueId h) {
        const ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
        const ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v, b.ChosenBlocks(h));
        return b.FromHeads(a, "attn_output");
    });
}

}  // namespace weft::model
