// Qwen3-Next and Qwen 3.5, dense and with experts (Qwen team 2025, 2026): three of four layers are
// gated delta nets, the fourth is attention with normed query and key heads, RoPE over a quarter of
// a head, and an output gate. The shared expert has a gate, too.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildQwen3Next(Builder& b, ValueId x) {
    const auto attend = [&](ValueId h) {
        return b.HasState() ? b.GatedDeltaNet(h) : b.GatedAttention(h);
    };
    return PreNormLayers(b, x, attend, "post_attention_norm");
}

namespace {

constexpr Architecture kQwen3NextTable[] = {
    {.family = {"qwen35", "Qwen 3.5, 3.6, Qwen3.8-27B (dense, text)",
                "gated delta nets, gated attention, partial RoPE", "qwen35"},
     .build = BuildQwen3Next,
     .traits = {.draft_head = true, .recurrent = Recurrent::Kind::kDeltaNet, .cycles = true}},
    {.family = {"qwen35moe", "Qwen 3.5, 3.6 with experts (text)",
                "the same, with a gated shared expert", "qwen35moe"},
     .build = BuildQwen3Next,
     .experts = true,
     .traits = {.draft_head = true, .recurrent = Recurrent::Kind::kDeltaNet, .cycles = true}},
    {.family = {"qwen3next", "Qwen3-Next, Qwen3-Coder-Next",
                "gated delta nets, gated attention, partial RoPE, a gated shared expert",
                "qwen3next, qwen3nextMoe"},
     .build = BuildQwen3Next,
     .experts = true,
     .traits = {.draft_head = true, .recurrent = Recurrent::Kind::kDeltaNet}},
};

}  // namespace

extern const std::span<const Architecture> kQwen3NextFamily = kQwen3NextTable;

}  // namespace weft::model
