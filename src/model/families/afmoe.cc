// Trinity (Arcee 2025) and Muse Glimmer (Meta 2026): norms before and after attention and MLP,
// normed heads, an output gate per column of attention, and RoPE only in windowed layers. Muse
// Glimmer also norms the embedding, and its norms after attention and MLP have an epsilon that no
// key of its GGUF files holds.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

namespace {

constexpr float kMusePostEps = 1e-8f;

}  // namespace

static ValueId BuildAfmoe(Builder& b, ValueId x) {
    return GatedNormLayers(b, x, false, b.hyper().rms_eps);
}

static ValueId BuildMuseGlimmer(Builder& b, ValueId x) {
    if (b.shard().layers.begin == 0) x = b.NormPlain(x, b.hyper().hidden);
    return GatedNormLayers(b, x, true, kMusePostEps);
}

namespace {

constexpr Architecture kAfmoeTable[] = {
    {.family = {"afmoe", "Trinity (Arcee)",
                "gates by column, norms on both sides, windows, leading dense layers", "trinity"},
     .build = BuildAfmoe,
     .experts = true,
     .traits = {.window_pattern = 4,
                .embeds_by_root = true,
                .gate_score = program::GateScore::kSigmoid}},
    {.family = {"muse-glimmer", "Muse Glimmer (text)",
                "gates by column, norms on both sides, windows, layers without positions",
                "museGlimmer"},
     .build = BuildMuseGlimmer,
     .traits = {.window_pattern = 4, .logit_factor = true}},
};

}  // namespace

extern const std::span<const Architecture> kAfmoeFamily = kAfmoeTable;

}  // namespace weft::model
