// Step 3.5 Flash (StepFun 2026) and Laguna (Poolside 2026): query and key heads are normed, a gate
// computed from the layer's input multiplies each head's output, and windowed layers have their own
// heads and RoPE. The two families differ in the gate.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

namespace {

ValueId BuildGated(Builder& b, ValueId x, program::RowGate gate) {
    const int64_t head_dim = b.hyper().head_dim;
    return PreNormLayers(b, x, [&](ValueId h) {
        const ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
        const ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
        return b.FromHeads(b.GateHeads(a, h, gate), "attn_output");
    });
}

}  // namespace

static ValueId BuildStep35(Builder& b, ValueId x) {
    return BuildGated(b, x, program::RowGate::kSigmoid);
}

static ValueId BuildLaguna(Builder& b, ValueId x) {
    return BuildGated(b, x, program::RowGate::kSoftplus);
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
