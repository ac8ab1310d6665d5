// Step 3.5 Flash (StepFun 2026) and Laguna (Poolside 2026): query and key heads are normed, what a
// head attends to is gated by the layer's input, and layers with a window have heads and RoPE of
// their own. They differ in the gate.
#include "model/model.h"

namespace weft::model {

using program::ValueId;

namespace {

ValueId BuildGated(Builder& b, ValueId x, program::RowGate gate) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden, head_dim = b.hyper().head_dim;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        const ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
        const ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
        x = b.Add(x, b.FromHeads(b.GateHeads(a, h, gate), "attn_output"));

        x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", hidden)));
    }
    return x;
}

}  // namespace

ValueId BuildStep35(Builder& b, ValueId x) {
    return BuildGated(b, x, program::RowGate::kSigmoid);
}

ValueId BuildLaguna(Builder& b, ValueId x) {
    return BuildGated(b, x, program::RowGate::kSoftplus);
}

}  // namespace weft::model
