// Kimi Linear (Kimi team 2025): three of four layers are Kimi Delta Attention, the fourth is latent
// attention without positions; experts are as in DeepSeek-V3. Ling 3 (Ant 2026): attention has
// positions and a gate per head, and decays are bounded.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildKimiLinear(Builder& b, ValueId x) {
    return PreNormLayers(
        b, x, [&](ValueId h) { return b.HasState() ? b.KimiDelta(h) : b.LatentAttention(h); });
}

}  // namespace weft::model
