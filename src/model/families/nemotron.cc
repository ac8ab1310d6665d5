// Models with LayerNorms that have biases. With RoPE over the halves of a head's first columns:
// Nemotron (NVIDIA 2024), StarCoder 2 (Lozhkov et al. 2024), StableLM 2 (Bellagente et al. 2024),
// GPT-NeoX (Black et al. 2022), Falcon (Almazrouei et al. 2023), Phi-1 to 2 (Gunasekar et al. 2023)
// Persimmon, Jais 2 and, with experts, DBRX (Databricks 2024). With RoPE over neighboring columns:
// GPT-J (Wang and Komatsuzaki 2021) and CodeGen. With a learned vector per position: GPT (Radford
// et al. 2018), GPT-2 (2019), StarCoder 1, OPT, GPT-Neo, BioGPT and XGLM. With ALiBi: BLOOM (Le
// Scao et al. 2022), MPT (MosaicML 2023) and Falcon-RW. In layers without a norm of the MLP, and
// with Hyper::beside, attention and the MLP read the same row. In GPT and OPT 350M, norms follow
// attention and the MLP, as in BERT.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildGptJ(Builder& b, ValueId x) {
    return GptLayers(b, x, true);
}

namespace {

constexpr Architecture kNemotronTable[] = {
    {.family = {"bloom", "BLOOM, BLOOMZ",
                "ALiBi, LayerNorm with biases, a normed embedding, MLPs of GELU without a gate",
                "bloom"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer,
                .ungated = Ungated::kGeluTanh,
                .rotates = false,
                .alibi = 8,
                .norms_embedding = true}},
    {.family = {"dbrx", "DBRX", "LayerNorm, clamped heads, experts", "dbrx"},
     .build = GptLayers,
     .experts = true,
     .traits = {.norms = Norms::kLayer, .clamps = true}},
    {.family = {"falcon", "Falcon 7B to 180B, Falcon 2, Falcon-RW",
                "LayerNorm with biases, attention beside the MLP, MLPs of GELU without a gate, "
                "ALiBi",
                "falcon, falconWide, falconAlibi"},
     .build = GptLayers,
     .traits =
         {.norms = Norms::kLayer, .ungated = Ungated::kGelu, .alibi = 0, .scales_alibi = true}},
    {.family = {"gpt2", "GPT, GPT-2, GPT-Neo, StarCoder 1, OPT, BioGPT, XGLM",
                "LayerNorm with biases, learned positions, MLPs of GELU without a gate, windows; "
                "norms behind attention and MLP",
                "gpt2, gptNeo, gptBigcode, opt, optBehind, openaiGpt, biogpt, xglm"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer, .ungated = Ungated::kGeluTanh, .rotates = false}},
    {.family = {"gptj", "GPT-J, CodeGen",
                "LayerNorm with biases, partial RoPE, attention beside the MLP, MLPs of GELU "
                "without a gate",
                "gptj, codegen"},
     .build = BuildGptJ,
     .traits = {.norms = Norms::kLayer, .ungated = Ungated::kGeluTanh}},
    {.family = {"gptneox", "GPT-NeoX, Pythia",
                "LayerNorm with biases, partial RoPE, attention beside the MLP, MLPs of GELU "
                "without a gate",
                "gptNeox, gptNeoxSerial, gptNeoxJapanese"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer, .ungated = Ungated::kGelu}},
    {.family = {"jais2", "Jais 2", "LayerNorm with biases, MLPs of ReLU squared", "jais2"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer, .ungated = Ungated::kReluSquared}},
    {.family = {"mpt", "MPT", "ALiBi, LayerNorm, clamped heads, MLPs of GELU without a gate",
                "mpt"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer,
                .ungated = Ungated::kGelu,
                .clamps = true,
                .rotates = false,
                .alibi = 0}},
    {.family = {"nemotron", "Nemotron 3, 4, Minitron, Persimmon",
                "LayerNorm with biases, partial RoPE, MLPs of ReLU squared, normed heads",
                "nemotron, persimmon"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer, .ungated = Ungated::kReluSquared}},
    {.family = {"phi2", "Phi-1, 1.5, 2",
                "LayerNorm with biases, partial RoPE, attention beside the MLP, MLPs of GELU "
                "without a gate; normed heads",
                "phi, phiNormed"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer, .ungated = Ungated::kGeluTanh}},
    {.family =
         {"stablelm", "StableLM 2",
          "LayerNorm with biases, partial RoPE; heads with LayerNorms of their own, attention "
          "beside the MLP",
          "stablelm, stablelmWide"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer}},
    {.family = {"starcoder2", "StarCoder 2",
                "LayerNorm with biases, windows, MLPs of GELU without a gate", "starcoder2"},
     .build = GptLayers,
     .traits = {.window = 4096, .norms = Norms::kLayer, .ungated = Ungated::kGeluTanh}},
};

}  // namespace

extern const std::span<const Architecture> kNemotronFamily = kNemotronTable;

}  // namespace weft::model
