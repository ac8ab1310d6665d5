// Jamba (AI21 2024): Mamba layers, and attention without positions in some; an MLP or experts
// behind each. Mamba (Gu and Dao 2023), Falcon-Mamba (2024) and Mamba-2 (Dao and Gu 2024) have only
// recurrent layers.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildJamba(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) {
        if (b.HasState()) return b.Mamba(h);
        const ValueId q = b.ToHeads(h, "attn_q", false), k = b.ToKvHeads(h, "attn_k", false);
        return b.FromHeads(b.Attention(q, k, b.ToKvHeads(h, "attn_v", false)), "attn_output");
    });
}

static ValueId BuildMamba(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const bool second = b.hyper().recurrent.kind == Recurrent::Kind::kMamba2;
        x = b.Add(x, second ? b.Mamba2(h) : b.Mamba(h));
    }
    return x;
}

namespace {

constexpr Architecture kJambaTable[] = {
    {.family = {"jamba", "Jamba", "Mamba, attention without positions", "jamba, jambaDense"},
     .build = BuildJamba,
     .experts = true,
     .traits = {.rotates = false, .renormalises = false, .recurrent = Recurrent::Kind::kMamba}},
    {.family = {"mamba", "Mamba, Falcon-Mamba (folders)", "Mamba, no attention",
                "mamba, falconMamba"},
     .build = BuildMamba,
     .traits = {.rotates = false, .recurrent = Recurrent::Kind::kMamba}},
    {.family = {"mamba2", "Mamba-2, Codestral Mamba (folders)", "Mamba-2, no attention", "mamba2"},
     .build = BuildMamba,
     .traits = {.rotates = false, .recurrent = Recurrent::Kind::kMamba2}},
};

}  // namespace

extern const std::span<const Architecture> kJambaFamily = kJambaTable;

}  // namespace weft::model
