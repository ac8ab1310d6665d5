// EXAONE 3 and 3.5 (LG AI Research 2024): Llama's block with RoPE over halves. EXAONE 4 and
// K-EXAONE (2025): normed query and key heads; in models with windows, only windowed layers have
// RoPE. EXAONE 4 norms the outputs of attention and MLP, K-EXAONE their inputs.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

namespace {

ValueId NormedHeads(Builder& b, ValueId h) {
    const int64_t head_dim = b.hyper().head_dim;
    ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
    ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
    const ValueId v = b.ToKvHeads(h, "attn_v", false);
    if (b.hyper().windowed.empty() || b.IsWindowed()) {
        q = b.Rope(q, false);
        k = b.Rope(k, false);
    }
    return b.FromHeads(b.Attention(q, k, v), "attn_output");
}

}  // namespace

static ValueId BuildExaone4(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        x = b.Add(x, b.Norm(NormedHeads(b, x), "post_attention_norm", hidden));
        x = b.Add(x, b.Norm(b.Mlp(x), "post_ffw_norm", hidden));
    }
    return x;
}

static ValueId BuildExaoneMoe(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) { return NormedHeads(b, h); });
}

namespace {

constexpr Architecture kExaoneTable[] = {
    {.family = {"exaone", "EXAONE 3, 3.5", "as llama", "exaone"}, .build = RotatedLayers},
    {.family = {"exaone-moe", "K-EXAONE",
                "normed heads, windows, layers without positions, leading dense layers",
                "exaoneMoe"},
     .build = BuildExaoneMoe,
     .experts = true,
     .traits = {.draft_head = true,
                .window_pattern = 4,
                .gate_score = program::GateScore::kSigmoid}},
    {.family = {"exaone4", "EXAONE 4", "normed heads, windows, layers without positions",
                "exaone4, exaone4Whole"},
     .build = BuildExaone4,
     .traits = {.window_pattern = 4}},
};

}  // namespace

extern const std::span<const Architecture> kExaoneFamily = kExaoneTable;

}  // namespace weft::model
