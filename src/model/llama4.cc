// Llama 4 (Meta 2025): layers with chunked attention rotate queries and keys, and may norm them
// after that, without a weight; the other layers have no positions, only the temperature of
// queries. Layers are dense, or have a shared expert and routed ones whose input is multiplied by
// the expert weight. MobileLLM-R1 has neither chunks nor experts.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildLlama4(Builder& b, ValueId x) {
    const Hyper& hyper = b.hyper();
    const auto turned = [&](ValueId heads) {
        const ValueId y = b.Rope(heads, true);
        return hyper.unit_heads ? b.NormPlain(y, hyper.head_dim) : y;
    };
    return PreNormLayers(b, x, [&](ValueId h) {
        ValueId q = b.ToHeads(h, "attn_q", false);
        ValueId k = b.ToKvHeads(h, "attn_k", false);
        const bool rotates = !hyper.chunked || b.IsWindowed();
        if (rotates) k = turned(k);
        q = rotates ? turned(q) : b.Tempered(q);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        return b.FromHeads(b.Attention(q, k, v), "attn_output");
    });
}

}  // namespace weft::model
