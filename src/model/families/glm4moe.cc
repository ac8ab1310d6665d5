// GLM-4.5 and later with experts (Zhipu AI 2025): half of a head is rotated, heads are normed if
// the file says so, and routing is as in DeepSeek-V3. Seed-OSS (ByteDance 2025) is the same block,
// dense, with fully rotated heads.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildGlm4Moe(Builder& b, ValueId x) {
    const auto attend = [&](ValueId h) {
        return NormedAttention(b, h, b.Has("attn_q_norm.weight"));
    };
    return PreNormLayers(b, x, attend, "post_attention_norm");
}

namespace {

constexpr Architecture kGlm4moeTable[] = {
    {.family = {"glm4moe", "GLM 4.5 to 4.7, 4.5V (text), Solar-Open",
                "normed heads, partial RoPE, leading dense layers", "glm4moe, glm4vMoe, solarOpen"},
     .build = BuildGlm4Moe,
     .experts = true,
     .traits = {.draft_head = true, .gate_score = program::GateScore::kSigmoid}},
    {.family = {"seed_oss", "Seed-OSS", "biases", "seedOss"}, .build = BuildGlm4Moe},
};

}  // namespace

extern const std::span<const Architecture> kGlm4moeFamily = kGlm4moeTable;

}  // namespace weft::model
