// DeepSeek-V2 and V3 (DeepSeek-AI 2024), R1, Kimi-K2: latent attention; some dense layers, then
// layers with routed experts and a shared one.
// In GLM 5 and DeepSeek-V3.2 an indexer chooses the positions that a row attends to.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

// MiniCPM 3 (OpenBMB 2024) scales what attention and the MLP add.
static ValueId BuildMiniCpm3(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    const float residual = b.hyper().residual_scale;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        x = b.Add(x, b.Scale(b.LatentAttention(b.Norm(x, "attn_norm", hidden)), residual));
        x = b.Add(x, b.Scale(b.Mlp(b.Norm(x, "ffn_norm", hidden)), residual));
    }
    return x;
}

// LongCat-Flash (Meituan 2025): two layers share the experts of the first one, whose result is
// added after the second one.
static ValueId BuildLongcat(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    ValueId experts = program::kNoValue;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        x = b.Add(x, b.LatentAttention(b.Norm(x, "attn_norm", hidden)));
        const ValueId h = b.Norm(x, "ffn_norm", hidden);
        const bool first = layer % 2 == 0;
        if (first) experts = b.Experts(h, h);
        x = b.Add(x, b.DenseMlp(h));
        if (!first) x = b.Add(x, experts);
    }
    return x;
}

namespace {

constexpr Architecture kDeepseek2Table[] = {
    {.family = {"deepseek2",
                "DeepSeek V2 (and Lite), V3, R1, Kimi-K2 to K2.7 (text), GLM 4.7 Flash, Youtu, "
                "A.X K1, Sarvam",
                "latent attention, YaRN, leading dense layers, groups of experts, temperature",
                "deepseekV2, deepseekV3, deepseekV3Halves, kimiK2, youtu, axk1"},
     .build = LatentLayers,
     .experts = true,
     .traits = {.draft_head = true,
                .temperature = true,
                .renormalises = false,
                .sigmoid_if_biased = true}},
    {.family = {"deepseek32", "DeepSeek V3.2",
                "sparse latent attention, YaRN, leading dense layers, groups of experts",
                "deepseekV32, deepseekV32Top"},
     .build = LatentLayers,
     .experts = true,
     .traits = {.draft_head = true,
                .indexer = IndexerKind::kAlways,
                .gate_score = program::GateScore::kSigmoid,
                .renormalises = false}},
    {.family = {"glm-dsa", "GLM 5 to 5.2",
                "sparse latent attention, layers that share a choice, leading dense layers",
                "glmDsa, glmDsaTop"},
     .build = LatentLayers,
     .experts = true,
     .traits = {.draft_head = true,
                .indexer = IndexerKind::kAlways,
                .late_indexers = true,
                .indexer_neighbours = true,
                .gate_score = program::GateScore::kSigmoid,
                .renormalises = false}},
    {.family = {"longcat-flash", "LongCat-Flash (folders)",
                "latent attention, experts beside two layers, experts without matrices",
                "longcatFlash"},
     .build = BuildLongcat,
     .experts = true,
     .traits = {.layers_together = 2, .renormalises = false}},
    {.family = {"minicpm3", "MiniCPM 3", "latent attention, LongRoPE, scales", "minicpm3"},
     .build = BuildMiniCpm3,
     .traits = {.granite_scales = true, .cpm_scales = true, .latent_halves = true}},
    {.family = {"mistral-large4", "Mistral Large 4 (text, folders)",
                "sparse latent attention, latents shared by layers, layers without positions, "
                "temperature by head, a soft cap",
                "mistralLarge4"},
     .build = LatentLayers,
     .experts = true,
     .traits = {.usual_latent_eps = true,
                .scales_latents = true,
                .indexer = IndexerKind::kAlways,
                .indexer_neighbours = true,
                .two_best = true}},
    {.family = {"mistral4", "Mistral Small 4", "latent attention, YaRN, temperature", "mistral4"},
     .build = LatentLayers,
     .experts = true,
     .traits = {.temperature = true, .renormalises = false, .two_best = true}},
};

}  // namespace

extern const std::span<const Architecture> kDeepseek2Family = kDeepseek2Table;

}  // namespace weft::model
