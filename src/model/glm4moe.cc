// GLM-4.5 and later with experts (Zhipu AI 2025): half of a head is rotated, heads are normed if
// the file says so, and routing is as in DeepSeek-V3. Seed-OSS (ByteDance 2025) is the same block,
// dense, with fully rotated heads.
#include "model/layers.h"
#include "model/model.h"

namespace weft::model {

using program::ValueId;

ValueId BuildGlm4Moe(Builder& b, ValueId x) {
    const auto attend = [&](ValueId h) {
        return NormedAttention(b, h, b.Has("attn_q_norm.weight"));
    };
    return PreNormLayers(b, x, attend, "post_attention_norm");
}

}  // namespace weft::model
