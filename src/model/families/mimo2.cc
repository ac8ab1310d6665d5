// MiMo-V2-Flash (Xiaomi 2025): values have fewer columns than keys and are scaled; windowed layers
// have sinks, and their own number of KV heads and RoPE base.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildMimo2(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) {
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", false), false);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", false), false);
        const ValueId v = b.Scale(b.ToKvHeads(h, "attn_v", false), b.hyper().value_scale);
        return b.FromHeads(b.Attention(q, k, v), "attn_output");
    });
}

namespace {

constexpr Architecture kMimo2Table[] = {
    {.family = {"mimo2", "MiMo V2 Flash",
                "values narrower than keys, sinks, heads and RoPE that differ by layer", "mimo2"},
     .build = BuildMimo2,
     .experts = true,
     .traits = {.draft_head = true,
                .value_scale = true,
                .gate_score = program::GateScore::kSigmoid}},
};

}  // namespace

extern const std::span<const Architecture> kMimo2Family = kMimo2Table;

}  // namespace weft::model
