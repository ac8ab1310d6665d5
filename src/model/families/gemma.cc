// Gemma 1 (Gemma Team 2024): Llama's block with GeGLU, RoPE over halves and the embedding times
// sqrt(hidden). Gemma 2 (2024) and 3 (2025), text: as Gemma 1, with norms before and after
// attention and MLP. Gemma 2 has windows in every second layer and soft caps on scores and logits.
// Gemma 3 has windows in five of six layers, with another RoPE base, and normed query and key heads
// instead of the caps. Norm weights in GGUF files include the 1 that Gemma adds.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

namespace {

ValueId BuildLayers(Builder& b, ValueId x, bool normed_heads) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId a = NormedAttention(b, b.Norm(x, "attn_norm", hidden), normed_heads);
        x = b.Add(x, b.Norm(a, "post_attention_norm", hidden));
        const ValueId m = b.Mlp(b.Norm(x, "ffn_norm", hidden));
        x = b.Add(x, b.Norm(m, "post_ffw_norm", hidden));
    }
    return x;
}

}  // namespace

static ValueId BuildGemma2(Builder& b, ValueId x) {
    return BuildLayers(b, x, false);
}

static ValueId BuildGemma3(Builder& b, ValueId x) {
    return BuildLayers(b, x, true);
}

namespace {

constexpr Architecture kGemmaTable[] = {
    {.family = {"gemma", "Gemma 1", "as llama, with GeGLU", "gemma1"},
     .build = RotatedLayers,
     .traits = {.activation = Activation::kGeluTanh, .embeds_by_root = true}},
    {.family = {"gemma2", "Gemma 2", "windows, soft caps", "gemma2"},
     .build = BuildGemma2,
     .traits = {.window = 4096,
                .window_pattern = 2,
                .activation = Activation::kGeluTanh,
                .embeds_by_root = true,
                .attention_cap = 50,
                .logit_cap = 30,
                .layers_by_hidden = 46}},
    {.family = {"gemma3", "Gemma 3 (text)", "windows, RoPE of two bases", "gemma3, gemma3Caps"},
     .build = BuildGemma3,
     .traits = {.window_pattern = 6,
                .activation = Activation::kGeluTanh,
                .embeds_by_root = true,
                .layers_by_hidden = 62,
                .plain_windows = true,
                .windowed_base = 10000}},
    {.family = {"gemma-embedding", "EmbeddingGemma (folders)",
                "an encoder: as gemma3, with attention to later tokens", "embeddingGemma"},
     .build = BuildGemma3,
     .traits = {.encoder = true,
                .window_pattern = 6,
                .activation = Activation::kGeluTanh,
                .embeds_by_root = true,
                .plain_windows = true,
                .windowed_base = 10000}},
    {.family = {"vaultgemma", "VaultGemma", "windows, soft caps", "vaultgemma"},
     .build = RotatedLayers,
     .traits = {.activation = Activation::kGeluTanh, .embeds_by_root = true}},
};

}  // namespace

extern const std::span<const Architecture> kGemmaFamily = kGemmaTable;

}  // namespace weft::model
