// Qwen2 and 2.5 (Yang et al. 2024): Llama's block with biases on Q, K and V, and RoPE over halves.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildQwen2(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) { return RotatedAttention(b, h, false, true); });
}

}  // namespace weft::model
