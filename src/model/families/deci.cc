// Llama-Nemotron (NVIDIA 2025, in DeciLM's format): Llama's block. An architecture search removed
// attention or the MLP from some layers and changed the number of MLP columns in others.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildDeci(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        if (b.Has("attn_output.weight")) {
            x = b.Add(x, RotatedAttention(b, b.Norm(x, "attn_norm", hidden), true));
        }
        if (b.Has("ffn_down.weight")) x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", hidden)));
    }
    return x;
}

namespace {

constexpr Architecture kDeciTable[] = {
    {.family = {"deci", "Llama-3.3-Nemotron-Super", "layers without attention or MLP", "deci"},
     .build = BuildDeci},
};

}  // namespace

extern const std::span<const Architecture> kDeciFamily = kDeciTable;

}  // namespace weft::model
