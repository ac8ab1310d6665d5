// Granite 3 and 4 (IBM 2024, 2025), dense and with experts: Llama's block, with factors on the
// embedding, on the outputs of attention and MLP, on scores and on logits. Most layers of Granite 4
// H are Mamba-2, and its attention has no positions.
#include "model/architecture.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildGraniteLayers(Builder& b, ValueId x, bool neighbors) {
    const int64_t hidden = b.hyper().hidden;
    const auto rotated = [&](ValueId heads) {
        return b.Rotates() ? b.Rope(heads, neighbors) : heads;
    };
    const auto normed = [&](ValueId part, const std::string& norm) {
        return b.Has(norm + ".weight") ? b.Norm(part, norm, hidden) : part;
    };
    const auto attend = [&](ValueId h) {
        const ValueId q = rotated(b.ToHeads(h, "attn_q", false));
        const ValueId k = rotated(b.ToKvHeads(h, "attn_k", false));
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        return b.FromHeads(b.Attention(q, k, v), "attn_output");
    };
    const float residual = b.hyper().residual_scale;
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        const ValueId a = b.HasState() ? b.Mamba2(h) : attend(h);
        x = b.Add(x, b.Scale(normed(a, "post_attention_norm"), residual));

        const ValueId m = b.Mlp(b.Norm(x, "ffn_norm", hidden));
        x = b.Add(x, b.Scale(normed(m, "post_ffw_norm"), residual));
    }
    return x;
}

static ValueId BuildGranite(Builder& b, ValueId x) {
    return BuildGraniteLayers(b, x, true);
}

static ValueId BuildBamba(Builder& b, ValueId x) {
    return BuildGraniteLayers(b, x, false);
}

namespace {

constexpr Architecture kGraniteTable[] = {
    {.family = {"bamba", "Bamba", "Mamba-2, partial RoPE", "bamba"},
     .build = BuildBamba,
     .traits = {.recurrent = Recurrent::Kind::kMamba2}},
    {.family = {"granite", "Granite 3 (dense), Granite 4 Micro, with windows",
                "scales, windows, sinks", "granite, graniteMicro, graniteWindows"},
     .build = BuildGranite,
     .traits = {.granite_scales = true, .marks_rotation = true, .lists_rotation = true}},
    {.family = {"granitehybrid", "Granite 4 H, dense and with experts",
                "scales, Mamba-2, attention without positions, a shared expert",
                "graniteHybrid, graniteHybridMoe"},
     .build = BuildGranite,
     .experts = true,
     .traits = {.granite_scales = true,
                .marks_rotation = true,
                .recurrent = Recurrent::Kind::kMamba2,
                .may_lack_state = true}},
    {.family = {"granitemoe", "Granite 3 with experts", "scales, windows, sinks, a shared expert",
                "graniteMoe, graniteMoeShared, graniteMoeWindows"},
     .build = BuildGranite,
     .experts = true,
     .traits = {.granite_scales = true, .marks_rotation = true, .lists_rotation = true}},
    {.family = {"hyperclovax", "HyperCLOVA X SEED", "scales, norms on both sides", "hyperclovax"},
     .build = BuildGranite,
     .traits = {.granite_scales = true}},
    {.family = {"minicpm", "MiniCPM", "scales", "minicpm"},
     .build = BuildGranite,
     .traits = {.granite_scales = true, .cpm_scales = true}},
};

}  // namespace

extern const std::span<const Architecture> kGraniteFamily = kGraniteTable;

}  // namespace weft::model
