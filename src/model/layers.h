// Layers that several families have. Each function emits ops in a fixed order; tests compare
// printed Programs with stored ones.
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
program::ValueId RotatedAttention(Builder& b, program::ValueId h, bool neighbors,
                                  bool biases = false);
// As RotatedAttention with neighbors = false. normed: a norm is applied to query and key heads
// before RoPE.
program::ValueId NormedAttention(Builder& b, program::ValueId h, bool normed);

// ---- All layers of a stage. x: the residual stream before them --------------------------------

// Llama: RoPE over neighboring columns, clamps and temperatures if the model has them.
program::ValueId LlamaLayers(Builder& b, program::ValueId x);
// Llama with RoPE over halves.
program::ValueId RotatedLayers(Builder& b, program::ValueId x);
// Qwen 3: query and key heads are normed before RoPE over halves; an indexer may choose blocks.
program::ValueId NormedHeadLayers(Builder& b, program::ValueId x);
// The same with queries and keys normed over all heads, then clamped if the model has a limit.
program::ValueId NormedRowLayers(Builder& b, program::ValueId x);
// Trinity: gates by column, norms before and after attention and the MLP, RoPE in windowed layers.
// post_eps: the epsilon of the norms after them.
program::ValueId GatedNormLayers(Builder& b, program::ValueId x, bool neighbors, float post_eps);
// Step 3.5: query and key heads are normed, and the layer's input gates the heads' outputs.
program::ValueId GatedHeadLayers(Builder& b, program::ValueId x, program::RowGate gate);
// Granite: what attention and the MLP add is scaled; layers with state are Mamba-2.
program::ValueId ScaledLayers(Builder& b, program::ValueId x, bool neighbors);
program::ValueId ScaledLayers(Builder& b, program::ValueId x);  // RoPE over neighboring columns
// GPT-2 and its successors: LayerNorms with biases; positions are a table's, RoPE's or ALiBi's. In
// layers without a norm of the MLP, and with Hyper::beside, attention and the MLP read the same
// row. In GPT and OPT 350M, norms follow attention and the MLP, as in BERT.
program::ValueId GptLayers(Builder& b, program::ValueId x, bool neighbors);
program::ValueId GptLayers(Builder& b, program::ValueId x);  // RoPE over halves
// DeepSeek-V2: latent attention.
program::ValueId LatentLayers(Builder& b, program::ValueId x);
// Kimi Linear: Kimi Delta Attention in layers with state, latent attention in the others.
program::ValueId KimiDeltaLayers(Builder& b, program::ValueId x);
// DeepSeek-V4: residual streams, of which attention and the MLP each read a mixture.
program::ValueId StreamLayers(Builder& b, program::ValueId x,
                              program::ValueId (Builder::*attention)(program::ValueId));
program::ValueId LatentStreamLayers(Builder& b, program::ValueId x);

}  // namespace weft::model
