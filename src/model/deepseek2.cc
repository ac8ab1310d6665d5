// DeepSeek-V2 and V3 (DeepSeek-AI 2024), R1, Kimi-K2: latent attention; some dense layers, then
// layers with routed experts and a shared one.
// In GLM 5 and DeepSeek-V3.2 an indexer chooses the positions that a row attends to.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildDeepSeek2(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) { return b.LatentAttention(h); });
}

}  // namespace weft::model
