// Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024), dense: pre-norm, Q, K and V in one tensor, the
// MLP's gate and up in another, RoPE over the halves of a part of each head, LongRoPE for long
// contexts.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildPhi3(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) { return RotatedAttention(b, h, false); });
}

}  // namespace weft::model
