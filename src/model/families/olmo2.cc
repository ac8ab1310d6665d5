// OLMo 2 (OLMo Team 2024) and 3: norms after attention and MLP instead of before them, Q and K
// RMS-normed over all heads at once, RoPE over halves. OLMo 3 has windows in three of four layers.
// In OLMo-Hybrid (2026), three of four layers are gated delta nets, with norms before both halves;
// its attention has no positions.
#include "model/architecture.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildOlmoHybrid(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        if (b.HasState()) {
            x = b.Add(x, b.GatedDeltaNet(b.Norm(x, "attn_norm", hidden)));
            x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", hidden)));
            continue;
        }
        auto [q, k] = b.NormHeads({b.ToHeads(x, "attn_q", false), b.ToKvHeads(x, "attn_k", false)});
        if (b.hyper().rotates) {
            q = b.Rope(q, false);
            k = b.Rope(k, false);
        }
        const ValueId a = b.Attention(q, k, b.ToKvHeads(x, "attn_v", false));
        x = b.Add(x, b.Norm(b.FromHeads(a, "attn_output"), "post_attention_norm", hidden));
        x = b.Add(x, b.Norm(b.Mlp(x), "post_ffw_norm", hidden));
    }
    return x;
}

static ValueId BuildOlmo2(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const auto [q, k] =
            b.NormHeads({b.ToHeads(x, "attn_q", false), b.ToKvHeads(x, "attn_k", false)});
        const ValueId v = b.ToKvHeads(x, "attn_v", false);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
        x = b.Add(x, b.Norm(b.FromHeads(a, "attn_output"), "post_attention_norm", hidden));

        x = b.Add(x, b.Norm(b.Mlp(x), "post_ffw_norm", hidden));
    }
    return x;
}

namespace {

constexpr Architecture kOlmo2Table[] = {
    {.family = {"flex-olmo", "FlexOlmo (folders)", "as OLMo 2, with experts", "flexOlmo"},
     .build = BuildOlmo2,
     .experts = true},
    {.family = {"olmo-hybrid", "OLMo-Hybrid (folders)",
                "gated delta nets, attention without positions, norms over all heads",
                "olmoHybrid, olmoHybridRope"},
     .build = BuildOlmoHybrid,
     .traits = {.marks_rotation = true, .recurrent = Recurrent::Kind::kDeltaNet}},
    {.family = {"olmo2", "OLMo 2, OLMo 3", "norms over all heads, windows, YaRN", "olmo2, olmo3"},
     .build = BuildOlmo2,
     .traits = {.window_pattern = 4, .plain_windows = true, .whole_magnitude = true}},
};

}  // namespace

extern const std::span<const Architecture> kOlmo2Family = kOlmo2Table;

}  // namespace weft::model
