// Layer bodies that several families use (llama.cc, qwen2.cc, ...). Each emits ops in a fixed
// order; tests compare printed Programs with stored ones.
#pragma once

#include "model/builder.h"

namespace weft::model {

// Pre-norm layers: x += attend(norm(x)); x += MLP(norm(x)). Some have a norm behind the MLP, too.
template <typename Attend>
program::ValueId PreNormLayers(Builder& b, program::ValueId x, Attend attend,
                               const char* mlp_norm = "ffn_norm") {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        x = b.Add(x, attend(b.Norm(x, "attn_norm", b.hyper().hidden)));
        const program::ValueId m = b.Mlp(b.Norm(x, mlp_norm, b.hyper().hidden));
        const bool behind = b.Has("post_ffw_norm.weight");
        x = b.Add(x, behind ? b.Norm(m, "post_ffw_norm", b.hyper().hidden) : m);
    }
    return x;
}

// Attention with RoPE on all query and key heads. h: rows to which a norm was applied. neighbors:
// RoPE rotates neighboring columns; otherwise column i and column i + rotary_dim / 2.
inline program::ValueId RotatedAttention(Builder& b, program::ValueId h, bool neighbors,
                                         bool biases = false) {
    const program::ValueId q = b.Rope(b.ToHeads(h, "attn_q", biases), neighbors);
    const program::ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", biases), neighbors);
    const program::ValueId v = b.ToKvHeads(h, "attn_v", biases);
    return b.FromHeads(b.Attention(q, k, v), "attn_output");
}

// As RotatedAttention with neighbors = false. normed: a norm is applied to query and key heads
// before RoPE.
inline program::ValueId NormedAttention(Builder& b, program::ValueId h, bool normed) {
    const int64_t head_dim = b.hyper().head_dim;
    program::ValueId q = b.ToHeads(h, "attn_q", false);
    program::ValueId k = b.ToKvHeads(h, "attn_k", false);
    if (normed) {
        q = b.Norm(q, "attn_q_norm", head_dim);
        k = b.Norm(k, "attn_k_norm", head_dim);
    }
    const program::ValueId v = b.ToKvHeads(h, "attn_v", false);
    return b.FromHeads(b.Attention(b.Rope(q, false), b.Rope(k, false), v), "attn_output");
}

}  // namespace weft::model
