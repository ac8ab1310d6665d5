// LFM2, dense and with experts (Liquid AI 2025): most layers are gated short convolutions, the
// others attention with normed query and key heads. Routing uses sigmoids with a bias.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildLfm2(Builder& b, ValueId x) {
    const int64_t head_dim = b.hyper().head_dim;
    return PreNormLayers(b, x, [&](ValueId h) {
        if (b.HasState()) return b.ShortConv(h);
        const ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
        const ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
        return b.FromHeads(a, "attn_output");
    });
}

namespace {

constexpr Architecture kLfm2Table[] = {
    {.family = {"lfm2", "LFM2, LFM2.5 (dense)", "gated short convolutions, normed heads", "lfm2"},
     .build = BuildLfm2,
     .traits = {.recurrent = Recurrent::Kind::kShortConv}},
    {.family = {"lfm2moe", "LFM2, LFM2.5 with experts",
                "gated short convolutions, normed heads, leading dense layers", "lfm2moe"},
     .build = BuildLfm2,
     .experts = true,
     .traits = {.gate_score = program::GateScore::kSigmoid,
                .recurrent = Recurrent::Kind::kShortConv}},
};

}  // namespace

extern const std::span<const Architecture> kLfm2Family = kLfm2Table;

}  // namespace weft::model
