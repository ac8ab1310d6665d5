// SmolLM3 (Hugging Face 2025): Llama's block, but every fourth layer has no positional encoding
// (NoPE, Kazemnejad et al. 2023).
#include "model/architecture.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildSmolLm3(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        ValueId q = b.ToHeads(h, "attn_q", false);
        ValueId k = b.ToKvHeads(h, "attn_k", false);
        const bool listed = !b.hyper().rotated.empty();
        if (listed ? b.Rotates() : (layer + 1) % 4 != 0) {
            q = b.Rope(q, true);
            k = b.Rope(k, true);
        }
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        x = b.Add(x, b.FromHeads(b.Attention(q, k, v), "attn_output"));

        x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", b.hyper().hidden)));
    }
    return x;
}

namespace {

constexpr Architecture kSmollm3Table[] = {
    {.family = {"smollm3", "SmolLM 3", "layers without positions, windows",
                "smollm3, smollm3Windows"},
     .build = BuildSmolLm3,
     .traits = {.lists_rotation = true}},
};

}  // namespace

extern const std::span<const Architecture> kSmollm3Family = kSmollm3Table;

}  // namespace weft::model
