// Models with LayerNorms that have biases, and RoPE over the halves of a head's first columns:
// Nemotron (NVIDIA 2024), StarCoder 2 (Lozhkov et al. 2024) and StableLM 2 (Bellagente et al.
// 2024). Layers without a norm of the MLP compute attention and the MLP side by side.
#include "model/architecture.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildNemotron(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        ValueId q = b.ToHeads(h, "attn_q", false), k = b.ToKvHeads(h, "attn_k", false);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        if (b.Has("attn_q_norm.weight")) {
            q = b.NormApart(q, "attn_q_norm", false);
            k = b.NormApart(k, "attn_k_norm", true);
        }
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
        x = b.Add(x, b.FromHeads(a, "attn_output"));
        x = b.Add(x, b.Mlp(b.Has("ffn_norm.weight") ? b.Norm(x, "ffn_norm", hidden) : h));
    }
    return x;
}

namespace {

constexpr Architecture kNemotronTable[] = {
    {.family = {"nemotron", "Nemotron 3, 4, Minitron",
                "LayerNorm with biases, partial RoPE, MLPs of ReLU squared", "nemotron"},
     .build = BuildNemotron,
     .traits = {.norms = Norms::kLayer, .ungated = Ungated::kReluSquared}},
    {.family =
         {"stablelm", "StableLM 2",
          "LayerNorm with biases, partial RoPE; heads with LayerNorms of their own, attention "
          "beside the MLP",
          "stablelm, stablelmWide"},
     .build = BuildNemotron,
     .traits = {.norms = Norms::kLayer}},
    {.family = {"starcoder2", "StarCoder 2",
                "LayerNorm with biases, windows, MLPs of GELU without a gate", "starcoder2"},
     .build = BuildNemotron,
     .traits = {.window = 4096, .norms = Norms::kLayer, .ungated = Ungated::kGeluTanh}},
};

}  // namespace

extern const std::span<const Architecture> kNemotronFamily = kNemotronTable;

}  // namespace weft::model
