// Step 3.5 Flash (StepFun 2026) and Laguna (Poolside 2026): query and key heads are normed, a gate
// computed from the layer's input multiplies each head's output, and windowed layers have their own
// heads and RoPE. The two families differ in the gate.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildStep35(Builder& b, ValueId x) {
    return GatedHeadLayers(b, x, program::RowGate::kSigmoid);
}

static ValueId BuildLaguna(Builder& b, ValueId x) {
    return GatedHeadLayers(b, x, program::RowGate::kSoftplus);
}

namespace {

constexpr Architecture kStep35Table[] = {
    {.family = {"laguna", "Laguna",
                "gates by head or column, heads and RoPE that differ by layer, YaRN",
                "laguna, lagunaWhole"},
     .build = BuildLaguna,
     .experts = true,
     .traits = {.window_pattern = 4,
                .first_sees_all = true,
                .plain_windows = true,
                .gate_score = program::GateScore::kSigmoid}},
    {.family = {"step35", "Step 3.5 Flash",
                "a gate per head, gated units with a limit, heads and RoPE that differ by layer",
                "step35"},
     .build = BuildStep35,
     .experts = true,
     .traits = {.draft_head = true,
                .limits = true,
                .halves_rotary = true,
                .plain_windows = true,
                .gate_score = program::GateScore::kSigmoid}},
};

}  // namespace

extern const std::span<const Architecture> kStep35Family = kStep35Table;

}  // namespace weft::model
