// gpt-oss (OpenAI 2025): every other layer has a window, each head a sink, projections have biases,
// and experts a clamped SwiGLU.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildGptOss(Builder& b, ValueId x) {
    const auto attend = [&](ValueId h) { return RotatedAttention(b, h, false, true); };
    return PreNormLayers(b, x, attend, "post_attention_norm");
}

namespace {

constexpr Architecture kGptOssTable[] = {
    {.family = {"gpt-oss", "gpt-oss", "windows, sinks, biases, clamped SwiGLU, YaRN", "gptOss"},
     .build = BuildGptOss,
     .experts = true,
     .traits = {.window_pattern = 2,
                .activation = Activation::kClampedSilu,
                .truncates_yarn = false}},
};

}  // namespace

extern const std::span<const Architecture> kGptOssFamily = kGptOssTable;

}  // namespace weft::model
