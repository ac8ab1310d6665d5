// Granite 3 and 4 (IBM 2024, 2025), dense and with experts: Llama's block, with factors on the
// embedding, on the outputs of attention and MLP, on scores and on logits. Most layers of Granite 4
// H are Mamba-2, and its attention has no positions.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildBamba(Builder& b, ValueId x) {
    return ScaledLayers(b, x, false);
}

namespace {

constexpr Architecture kGraniteTable[] = {
    {.family = {"bamba", "Bamba", "Mamba-2, partial RoPE", "bamba"},
     .build = BuildBamba,
     .traits = {.recurrent = Recurrent::Kind::kMamba2}},
    {.family = {"granite", "Granite 3 (dense), Granite 4 Micro, with windows",
                "scales, windows, sinks", "granite, graniteMicro, graniteWindows"},
     .build = ScaledLayers,
     .traits = {.granite_scales = true, .marks_rotation = true, .lists_rotation = true}},
    {.family = {"granitehybrid", "Granite 4 H, dense and with experts",
                "scales, Mamba-2, attention without positions, a shared expert",
                "graniteHybrid, graniteHybridMoe"},
     .build = ScaledLayers,
     .experts = true,
     .traits = {.granite_scales = true,
                .marks_rotation = true,
                .recurrent = Recurrent::Kind::kMamba2,
                .may_lack_state = true}},
    {.family = {"granitemoe", "Granite 3 with experts", "scales, windows, sinks, a shared expert",
                "graniteMoe, graniteMoeShared, graniteMoeWindows"},
     .build = ScaledLayers,
     .experts = true,
     .traits = {.granite_scales = true, .marks_rotation = true, .lists_rotation = true}},
    {.family = {"hyperclovax", "HyperCLOVA X SEED", "scales, norms on both sides", "hyperclovax"},
     .build = ScaledLayers,
     .traits = {.granite_scales = true}},
    {.family = {"minicpm", "MiniCPM", "scales", "minicpm"},
     .build = ScaledLayers,
     .traits = {.granite_scales = true, .cpm_scales = true}},
};

}  // namespace

extern const std::span<const Architecture> kGraniteFamily = kGraniteTable;

}  // namespace weft::model
