// Kimi Linear (Kimi team 2025): three of four layers are Kimi Delta Attention, the fourth is latent
// attention without positions; experts are as in DeepSeek-V3. Ling 3 (Ant 2026): attention has
// positions and a gate per head, and decays are bounded.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

namespace {

constexpr Architecture kKimiLinearTable[] = {
    {.family =
         {"bailingmoe3", "Ling 3, Ring 3",
          "Kimi Delta Attention, gated latent attention, leading dense layers, groups of experts",
          "ling3"},
     .build = KimiDeltaLayers,
     .experts = true,
     .traits = {.limits = true,
                .gate_score = program::GateScore::kSigmoid,
                .recurrent = Recurrent::Kind::kKimiDelta}},
    {.family = {"kimi-linear", "Kimi Linear",
                "Kimi Delta Attention, latent attention without positions, leading dense layers",
                "kimiLinear"},
     .build = KimiDeltaLayers,
     .experts = true,
     .traits = {.rotates_latents = false,
                .gate_score = program::GateScore::kSigmoid,
                .recurrent = Recurrent::Kind::kKimiDelta}},
};

}  // namespace

extern const std::span<const Architecture> kKimiLinearFamily = kKimiLinearTable;

}  // namespace weft::model
