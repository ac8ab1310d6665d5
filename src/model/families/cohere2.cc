// Command R (2024), Command A and Cohere's MoE models (2025): attention and MLP read the same
// LayerNorm of x, and both are added to x. Command R has RoPE in all layers; the others only in
// windowed layers and in leading layers without experts.
#include "model/architecture.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildCohere2(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const Moe& moe = b.hyper().moe;
    const bool everywhere = b.hyper().architecture == "command-r";
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const bool experts = b.Has("ffn_gate_inp.weight");
        ValueId q = b.ToHeads(h, "attn_q", false), k = b.ToKvHeads(h, "attn_k", false);
        if (b.Has("attn_q_norm.weight")) {
            q = b.NormApart(q, "attn_q_norm", false);
            k = b.NormApart(k, "attn_k_norm", true);
        }
        if (everywhere || b.IsWindowed() || (moe.experts > 0 && !experts)) {
            q = b.Rope(q, true);
            k = b.Rope(k, true);
        }
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.FromHeads(b.Attention(q, k, v), "attn_output");

        // The mean of routed and shared experts.
        const float share = experts && moe.shared_ffn > 0 ? 0.5f : 1.0f;
        x = b.Add(x, a);
        x = b.Add(x, b.Scale(b.Mlp(h), share));
    }
    return x;
}

namespace {

constexpr Architecture kCohere2Table[] = {
    {.family = {"cohere2", "Command A, Command R7B",
                "LayerNorm, attention beside the MLP, windows, layers without positions",
                "cohere2"},
     .build = BuildCohere2,
     .traits = {.window_pattern = 4, .norms = Norms::kByKey, .logit_factor = true}},
    {.family = {"cohere2moe", "Command A+, Cohere 2 with experts",
                "as cohere2; leading dense layers, a shared expert", "cohere2Moe"},
     .build = BuildCohere2,
     .experts = true,
     .traits = {.window_pattern = 4,
                .norms = Norms::kByKey,
                .logit_factor = true,
                .gate_score = program::GateScore::kSigmoid}},
    {.family = {"command-r", "Command R, R+",
                "LayerNorm, attention beside the MLP; heads with LayerNorms of their own",
                "commandR, commandRPlus"},
     .build = BuildCohere2,
     .traits = {.norms = Norms::kByKey, .logit_factor = true}},
};

}  // namespace

extern const std::span<const Architecture> kCohere2Family = kCohere2Table;

}  // namespace weft::model
