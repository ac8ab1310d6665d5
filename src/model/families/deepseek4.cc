// DeepSeek-V4 (DeepSeek-AI 2026): several residual streams, of which attention and experts each
// read one mixture; attention to the last positions and to pooled windows of all earlier ones.
#include "model/architecture.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildDeepSeek4(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const Builder::Merged a = b.Merge(x, "attn");
        x = b.Mix(x, a, b.WindowAttention(b.Norm(a.x, "attn_norm", hidden)));
        const Builder::Merged f = b.Merge(x, "ffn");
        x = b.Mix(x, f, b.Mlp(b.Norm(f.x, "ffn_norm", hidden)));
    }
    return x;
}

namespace {

constexpr Architecture kDeepseek4Table[] = {
    {.family = {"deepseek4", "DeepSeek V4 (Flash, Pro)",
                "hyper-connections, windows, pooled keys, an indexer, sinks, experts by token",
                "deepseekV4"},
     .build = BuildDeepSeek4,
     .experts = true,
     .traits = {.limits = true,
                .limits_gate = true,
                .plain_windows = true,
                .indexer = IndexerKind::kAlways,
                .pools_windows = true,
                .drafts_may_lack = true,
                .gate_score = program::GateScore::kSqrtSoftplus}},
};

}  // namespace

extern const std::span<const Architecture> kDeepseek4Family = kDeepseek4Table;

}  // namespace weft::model
