// Qwen3-Next and Qwen 3.5, dense and with experts (Qwen team 2025, 2026): three of four layers are
// gated delta nets, the fourth is attention with normed query and key heads, RoPE over a quarter of
// a head, and an output gate. The shared expert has a gate, too.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildQwen3Next(Builder& b, ValueId x) {
    const auto attend = [&](ValueId h) {
        return b.HasState() ? b.GatedDeltaNet(h) : b.GatedAttention(h);
    };
    return PreNormLayers(b, x, attend, "post_attention_norm");
}

}  // namespace weft::model
