// Llama 4 (Meta 2025): layers with chunked attention rotate queries and keys, and may norm them
// after that, without a weight; the other layers have no positions, only the temperature of
// queries. Layers are dense, or have a shared expert and routed ones whose input is multiplied by
// the expert weight. MobileLLM-R1 has neither chunks nor experts.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildLlama4(Builder& b, ValueId x) {
    const Hyper& hyper = b.hyper();
    const auto turned = [&](ValueId heads) {
        const ValueId y = b.Rope(heads, true);
        return hyper.unit_heads ? b.NormPlain(y, hyper.head_dim) : y;
    };
    return PreNormLayers(b, x, [&](ValueId h) {
        ValueId q = b.ToHeads(h, "attn_q", false);
        ValueId k = b.ToKvHeads(h, "attn_k", false);
        const bool rotates = !hyper.chunked || b.IsWindowed();
        if (rotates) k = turned(k);
        q = rotates ? turned(q) : b.Tempered(q);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        return b.FromHeads(b.Attention(q, k, v), "attn_output");
    });
}

namespace {

constexpr Architecture kLlama4Table[] = {
    {.family = {"llama4", "Llama 4 (text), MobileLLM-R1",
                "attention in chunks, layers without positions, temperature, a shared expert",
                "llama4, llama4Dense"},
     .build = BuildLlama4,
     .experts = true,
     .traits = {.window = 8192,
                .window_pattern = 4,
                .chunks = true,
                .temperature = true,
                .norms_heads_by_experts = true,
                .gate_score = program::GateScore::kSigmoid,
                .renormalises = false,
                .weighs_input = true}},
};

}  // namespace

extern const std::span<const Architecture> kLlama4Family = kLlama4Table;

}  // namespace weft::model
