// Nemotron-H, Nemotron Nano 2 and Nemotron 3, dense and with experts (NVIDIA 2025): each layer is a
// Mamba-2 layer, attention without positions, or an MLP or experts with ReLU squared, as its
// tensors show. The largest models project rows to fewer columns for their experts.
#include "model/architecture.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildNemotronH(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        if (b.HasState()) {
            x = b.Add(x, b.Mamba2(h));
        } else if (b.Has("attn_q.weight")) {
            const ValueId q = b.ToHeads(h, "attn_q", false), k = b.ToKvHeads(h, "attn_k", false);
            const ValueId a = b.Attention(q, k, b.ToKvHeads(h, "attn_v", false));
            x = b.Add(x, b.FromHeads(a, "attn_output"));
        } else {
            x = b.Add(x, b.Mlp(h));
        }
    }
    return x;
}

namespace {

constexpr Architecture kNemotronHTable[] = {
    {.family = {"nemotron_h", "Nemotron-H, Nemotron Nano 2",
                "Mamba-2, attention without positions, MLPs of ReLU squared", "nemotronH"},
     .build = BuildNemotronH,
     .traits = {.ungated = Ungated::kReluSquared,
                .rotates = false,
                .recurrent = Recurrent::Kind::kMamba2}},
    {.family = {"nemotron_h_moe", "Nemotron 3 (Nano, Super, Ultra)",
                "the same, with ungated experts, a shared one, latent experts",
                "nemotronHMoe, nemotronHLatent"},
     .build = BuildNemotronH,
     .experts = true,
     .traits = {.ungated = Ungated::kReluSquared,
                .rotates = false,
                .gate_score = program::GateScore::kSigmoid,
                .recurrent = Recurrent::Kind::kMamba2}},
};

}  // namespace

extern const std::span<const Architecture> kNemotronHFamily = kNemotronHTable;

}  // namespace weft::model
