// MiniMax-M2 (MiniMax 2025): q and k are each normed over all heads, half of a head is rotated, and
// all layers have experts, routed by sigmoids with a bias. OLMoE (Muennighoff et al. 2024) rotates
// whole heads, and may clamp queries, keys and values.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

namespace {

constexpr Architecture kMinimaxM2Table[] = {
    {.family = {"minimax-m2", "MiniMax M2", "norms over all heads, partial RoPE", "minimaxM2"},
     .build = NormedRowLayers,
     .experts = true,
     .traits = {.gate_score = program::GateScore::kSigmoid}},
    {.family = {"olmoe", "OLMoE", "norms over all heads, clamped heads", "olmoe, olmoeClamped"},
     .build = NormedRowLayers,
     .experts = true,
     .traits = {.clamps = true, .renormalises = false}},
};

}  // namespace

extern const std::span<const Architecture> kMinimaxM2Family = kMinimaxM2Table;

}  // namespace weft::model
