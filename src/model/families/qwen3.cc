// Qwen3, dense and with experts (Yang et al. 2025): no biases; each query and key head is
// RMS-normed before RoPE over halves; head_dim is explicit. The same block: Hy3 (Tencent 2026),
// with a sigmoid gate, leading dense layers and a shared expert; dots.llm1 (rednote 2025); MiniMax
// M3 (MiniMax 2026), with clamped SwiGLU and an indexer that chooses the blocks of positions that a
// row attends to. Apertus (Swiss AI 2025) has MLPs without a gate.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

namespace {

constexpr Architecture kQwen3Table[] = {
    {.family = {"apertus", "Apertus (8B, 70B)", "normed heads, MLPs of xIELU without a gate",
                "apertus"},
     .build = NormedHeadLayers,
     .traits = {.ungated = Ungated::kXielu}},
    {.family = {"bailingmoe2", "Ling 2, Ring 2",
                "normed heads, partial RoPE, leading dense layers, groups of experts", "ling2"},
     .build = NormedHeadLayers,
     .experts = true,
     .traits = {.draft_head = true, .gate_score = program::GateScore::kSigmoid}},
    {.family = {"dots1", "dots.llm1", "normed heads, leading dense layers, shared experts",
                "dots1"},
     .build = NormedHeadLayers,
     .experts = true,
     .traits = {.gate_score = program::GateScore::kSigmoid, .renormalises = false}},
    {.family = {"hy_v3", "Hy3", "normed heads, leading dense layers, a shared expert", "hyV3"},
     .build = NormedHeadLayers,
     .experts = true,
     .traits = {.draft_head = true, .gate_score = program::GateScore::kSigmoid}},
    {.family = {"mellum", "Mellum 2", "normed heads, windows, RoPE of two bases", "mellum"},
     .build = NormedHeadLayers,
     .experts = true,
     .traits = {.plain_windows = true}},
    {.family = {"minimax-m3", "MiniMax M3 (text)",
                "block-sparse attention, normed heads, partial RoPE, clamped SwiGLU, leading dense "
                "layers",
                "minimaxM3, minimaxM3Top"},
     .build = NormedHeadLayers,
     .experts = true,
     .traits = {.activation = Activation::kClampedSilu,
                .indexer = IndexerKind::kBlocks,
                .gate_score = program::GateScore::kSigmoid}},
    {.family = {"qwen3", "Qwen 3 (dense)", "normed heads", "qwen3Tied"}, .build = NormedHeadLayers},
    {.family = {"qwen3moe", "Qwen 3 with experts", "normed heads", "qwen3moe"},
     .build = NormedHeadLayers,
     .experts = true},
    {.family = {"qwen3vl", "Qwen3-VL (text)", "normed heads", "qwen3vl"},
     .build = NormedHeadLayers},
    {.family = {"qwen3vlmoe", "Qwen3-VL with experts (text)", "normed heads", "qwen3vlmoe"},
     .build = NormedHeadLayers,
     .experts = true},
};

}  // namespace

extern const std::span<const Architecture> kQwen3Family = kQwen3Table;

}  // namespace weft::model
