// Trinity (Arcee 2025) and Muse Glimmer (Meta 2026): norms before and after attention and MLP,
// normed heads, an output gate per column of attention, and RoPE only in windowed layers. Muse
// Glimmer also norms the embedding, and its norms after attention and MLP have an epsilon that no
// key of its GGUF files holds.
#include "model/architecture.h"

namespace weft::model {

using program::ValueId;

namespace {

constexpr float kMusePostEps = 1e-8f;

// neighbors: RoPE pairs neighboring columns; else columns of two halves.
ValueId Layers(Builder& b, ValueId x, bool neighbors, float post_eps) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden, head_dim = b.hyper().head_dim;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
        ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
        if (b.IsWindowed()) {
            q = b.Rope(q, neighbors);
            k = b.Rope(k, neighbors);
        }
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.GateHeads(b.Attention(q, k, v), h, program::RowGate::kSigmoid);
        x = b.Add(x, b.NormWithin(b.FromHeads(a, "attn_output"), "post_attention_norm", hidden,
                                  post_eps));

        const ValueId y = b.Mlp(b.Norm(x, "ffn_norm", hidden));
        x = b.Add(x, b.NormWithin(y, "post_ffw_norm", hidden, post_eps));
    }
    return x;
}

}  // namespace

static ValueId BuildAfmoe(Builder& b, ValueId x) {
    return Layers(b, x, false, b.hyper().rms_eps);
}

static ValueId BuildMuseGlimmer(Builder& b, ValueId x) {
    if (b.shard().layers.begin == 0) x = b.NormPlain(x, b.hyper().hidden);
    return Layers(b, x, true, kMusePostEps);
}

namespace {

constexpr Architecture kAfmoeTable[] = {
    {.family = {"afmoe", "Trinity (Arcee)",
                "gates by column, norms on both sides, windows, leading dense layers", "trinity"},
     .build = BuildAfmoe,
     .experts = true,
     .traits = {.window_pattern = 4,
                .embeds_by_root = true,
                .gate_score = program::GateScore::kSigmoid}},
    {.family = {"muse-glimmer", "Muse Glimmer (text)",
                "gates by column, norms on both sides, windows, layers without positions",
                "museGlimmer"},
     .build = BuildMuseGlimmer,
     .traits = {.window_pattern = 4, .logit_factor = true}},
};

}  // namespace

extern const std::span<const Architecture> kAfmoeFamily = kAfmoeTable;

}  // namespace weft::model
