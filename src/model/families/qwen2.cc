// Qwen2 and 2.5 (Yang et al. 2024): Llama's block with biases on Q, K and V, and RoPE over halves.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildQwen2(Builder& b, ValueId x) {
    const bool biases = b.hyper().moe.experts == 0;  // models with experts may lack them
    return PreNormLayers(b, x, [&](ValueId h) { return RotatedAttention(b, h, false, biases); });
}

namespace {

constexpr Architecture kQwen2Table[] = {
    {.family = {"qwen2", "Qwen 1.5 to 2.5", "biases, YaRN", "qwen2, qwen2Yarn"},
     .build = BuildQwen2},
    {.family = {"qwen2moe", "Qwen 1.5 and 2 with experts", "biases, a gated shared expert",
                "qwen2moe, qwen2moePlain"},
     .build = BuildQwen2,
     .experts = true,
     .traits = {.renormalises = false}},
    {.family = {"qwen2vl", "Qwen2-VL, Qwen2.5-VL (text)", "biases", "qwen2vl"},
     .build = BuildQwen2},
};

}  // namespace

extern const std::span<const Architecture> kQwen2Family = kQwen2Table;

}  // namespace weft::model
