// Gemma 4 (Google 2026), 31B and 26B-A4B: Gemma 3's block, in which layers without a window have
// larger heads, fewer KV heads and keys that serve as values, too; value heads are normalised as
// well, scores are not scaled, and each layer ends in a factor of its own. RoPE of layers without a
// window turns the first quarter of each head's pairs.
#include <cmath>

#include "model/model.h"

namespace weft::model {

using program::ValueId;

namespace {

// With experts: these and the dense MLP see the same rows, each between norms of its own. The
// router sees them normed without a weight, times a vector and hidden^-1/2.
ValueId FeedForward(Builder& b, ValueId x) {
    const int64_t hidden = b.hyper().hidden;
    const ValueId dense = b.DenseMlp(b.Norm(x, "ffn_norm", hidden));
    if (!b.Has("ffn_gate_inp.weight")) return dense;
    const float root = std::sqrt(static_cast<float>(hidden));
    const ValueId gate = b.Scale(b.NormBy(x, "ffn_gate_inp", "scale", hidden), 1.0f / root);
    const ValueId experts = b.Experts(b.Norm(x, "pre_ffw_norm_2", hidden), gate);
    return b.Add(b.Norm(dense, "post_ffw_norm_1", hidden),
                 b.Norm(experts, "post_ffw_norm_2", hidden));
}

}  // namespace

ValueId BuildGemma4(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const int64_t head_dim = b.hyper().HeadsOf(layer).head_dim;
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        const ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
        const ValueId key = b.ToKvHeads(h, "attn_k", false);
        const ValueId value = b.Has("attn_v.weight") ? b.ToKvHeads(h, "attn_v", false) : key;
        const ValueId k = b.Norm(key, "attn_k_norm", head_dim);
        const ValueId v = b.NormPlain(value, head_dim);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
        x = b.Add(x, b.Norm(b.FromHeads(a, "attn_output"), "post_attention_norm", hidden));

        x = b.Add(x, b.Norm(FeedForward(b, x), "post_ffw_norm", hidden));
        x = b.ScaleBy(x, "layer_output_scale");
    }
    return x;
}

}  // namespace weft::model
