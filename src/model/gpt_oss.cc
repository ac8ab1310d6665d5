// gpt-oss (OpenAI 2025): every other layer has a window, each head a sink, projections have biases,
// and experts a clamped SwiGLU.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildGptOss(Builder& b, ValueId x) {
    const auto attend = [&](ValueId h) { return RotatedAttention(b, h, false, true); };
    return PreNormLayers(b, x, attend, "post_attention_norm");
}

}  // namespace weft::model
