// Gemma 4 (Google 2026): Gemma 3's block, except that layers without a window have larger heads,
// fewer KV heads, and keys that also serve as values; value heads are normed as well, scores are
// not scaled, and each layer ends with a scalar factor. RoPE of layers without a window rotates the
// first quarter of each head's pairs. E2B and E4B add a per-layer embedding, and their last layers
// read the KV cache of the last layer of their kind that has one. Gemma 3n (Google 2025) has these
// as well; its residual stream is AltUp's, and LAuReL is added to attention.
#include <cmath>

#include "model/architecture.h"

namespace weft::model {

using program::ValueId;

namespace {

// In layers with experts, these and the dense MLP read the same rows, each with its own norms
// before and after. The router reads them normed without a weight, times a vector and hidden^-1/2.
ValueId FeedForward(Builder& b, ValueId x) {
    const int64_t hidden = b.hyper().hidden;
    const ValueId dense = b.DenseMlp(b.Norm(x, "ffn_norm", hidden));
    if (!b.Has("ffn_gate_inp.weight")) return dense;
    const float root = std::sqrt(static_cast<float>(hidden));
    const ValueId gate = b.Scale(b.NormBy(x, "ffn_gate_inp", "scale", hidden), 1.0f / root);
    const ValueId experts = b.Experts(b.Norm(x, "pre_ffw_norm_2", hidden), gate);
    return b.Add(b.Norm(dense, "post_ffw_norm_1", hidden),
                 b.Norm(experts, "post_ffw_norm_2", hidden));
}

ValueId Attended(Builder& b, ValueId x, int64_t head_dim) {
    const ValueId q = b.Norm(b.ToHeads(x, "attn_q", false), "attn_q_norm", head_dim);
    if (b.SharesKv()) return b.SharedAttention(b.Rope(q, false));
    const ValueId key = b.ToKvHeads(x, "attn_k", false);
    const ValueId value = b.Has("attn_v.weight") ? b.ToKvHeads(x, "attn_v", false) : key;
    // (Projections, norms and rotations are grouped, so that a GPU waits once for each kind.)
    const ValueId k = b.Norm(key, "attn_k_norm", head_dim);
    const ValueId v = b.NormPlain(value, head_dim);
    return b.Attention(b.Rope(q, false), b.Rope(k, false), v);
}

// The per-layer input, gated by a projection of x.
ValueId OfLayerInput(Builder& b, ValueId x) {
    const int64_t hidden = b.hyper().hidden, columns = b.hyper().layer_columns;
    const ValueId gate = b.ToAll(x, "inp_gate", columns, hidden);
    const ValueId y = b.Gated(gate, b.LayerInput(), "gated_input");
    return b.Norm(b.ToAll(y, "proj", hidden, columns), "post_norm", hidden);
}

}  // namespace

static ValueId BuildGemma4(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const int64_t head_dim = b.hyper().HeadsOf(layer).head_dim;
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        const ValueId a = Attended(b, h, head_dim);
        x = b.Add(x, b.Norm(b.FromHeads(a, "attn_output"), "post_attention_norm", hidden));

        x = b.Add(x, b.Norm(FeedForward(b, x), "post_ffw_norm", hidden));
        if (b.hyper().layer_columns > 0) x = b.Add(x, OfLayerInput(b, x));
        x = b.ScaleBy(x, "layer_output_scale.weight");
    }
    return x;
}

static ValueId BuildGemma3n(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId predicted = b.Predicted(x), first = b.FirstStream(predicted);
        const ValueId h = b.Norm(first, "attn_norm", hidden), laurel = b.Laurel(h);
        const ValueId a = b.FromHeads(Attended(b, h, b.hyper().head_dim), "attn_output");
        const ValueId attended = b.Add(first, b.Norm(a, "post_attention_norm", hidden));
        const ValueId y = b.Scale(b.Add(attended, laurel), std::sqrt(0.5f));
        const ValueId m =
            b.Norm(b.DenseMlp(b.Norm(y, "ffn_norm", hidden)), "post_ffw_norm", hidden);
        x = b.Corrected(predicted, b.Add(y, m));
        x = b.AddToOthers(x, OfLayerInput(b, b.FirstStream(x, "altup_correct_scale")));
    }
    return x;
}

namespace {

constexpr Architecture kGemma4Table[] = {
    {.family =
         {"gemma3n", "Gemma 3n (text: E4B, E2B)",
          "AltUp, LAuReL, MLPs with few active columns, embeddings by layer, shared KV caches",
          "gemma3n"},
     .build = BuildGemma3n,
     .traits = {.window_pattern = 5,
                .activation = Activation::kGeluTanh,
                .embeds_by_root = true,
                .logit_cap = 30,
                .plain_scores = true,
                .plain_windows = true,
                .windowed_base = 10000,
                .layer_inputs = true,
                .alt_up = true}},
    {.family = {"gemma4", "Gemma 4 (text: 31B, 26B-A4B, 12B, E4B, E2B)",
                "heads that differ by layer, V from K; experts beside a dense MLP; embeddings by "
                "layer, shared KV caches",
                "gemma4, gemma4Moe, gemma4Small, gemma4Wide"},
     .build = BuildGemma4,
     .experts = true,
     .traits = {.activation = Activation::kGeluTanh,
                .embeds_by_root = true,
                .plain_scores = true,
                .plain_windows = true,
                .windowed_base = 10000,
                .layer_inputs = true}},
};

}  // namespace

extern const std::span<const Architecture> kGemma4Family = kGemma4Table;

}  // namespace weft::model
