// Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024), dense: pre-norm, Q, K and V in one tensor, the
// MLP's gate and up in another, RoPE over the halves of a part of each head, LongRoPE for long
// contexts. Phi-3.5-MoE has separate tensors, LayerNorms with biases and experts.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

namespace {

constexpr Architecture kPhi3Table[] = {
    {.family = {"phimoe", "Phi-3.5-MoE",
                "LayerNorm with biases, LongRoPE, sparse mixing of experts", "phimoe"},
     .build = RotatedLayers,
     .experts = true,
     .traits = {.norms = Norms::kLayer,
                .gate_score = program::GateScore::kSparseMixer,
                .renormalises = false}},
    {.family = {"phi3", "Phi-3, Phi-3.5-mini, Phi-4", "fused tensors, LongRoPE, partial RoPE",
                "phi3Short, phi3Long"},
     .build = RotatedLayers},
};

}  // namespace

extern const std::span<const Architecture> kPhi3Family = kPhi3Table;

}  // namespace weft::model
