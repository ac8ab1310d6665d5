// Hunyuan, dense and with experts (Tencent 2025): query and key heads are normed after RoPE.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildHunyuan(Builder& b, ValueId x) {
    const int64_t head_dim = b.hyper().head_dim;
    return PreNormLayers(b, x, [&](ValueId h) {
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", false), false);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", false), false);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a =
            b.Attention(b.Norm(q, "attn_q_norm", head_dim), b.Norm(k, "attn_k_norm", head_dim), v);
        return b.FromHeads(a, "attn_output");
    });
}

namespace {

constexpr Architecture kHunyuanTable[] = {
    {.family = {"hunyuan-dense", "Hunyuan 0.5B to 7B", "heads normed after RoPE, NTK", "hunyuan"},
     .build = BuildHunyuan,
     .traits = {.alpha = true}},
    {.family = {"hunyuan-moe", "Hunyuan A13B", "heads normed after RoPE, NTK, a shared expert",
                "hunyuanMoe"},
     .build = BuildHunyuan,
     .experts = true},
};

}  // namespace

extern const std::span<const Architecture> kHunyuanFamily = kHunyuanTable;

}  // namespace weft::model
