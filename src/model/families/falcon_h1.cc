// Falcon-H1 (TII 2025): attention and a Mamba-2 layer in parallel on the same normed rows, then an
// MLP. Files have the muP multipliers folded into their weights, or in tensors of their own
// (NAME.scale) where folding would round the weights again.
#include "model/architecture.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildFalconH1(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const ValueId q = b.ScaleBy(b.ToHeads(h, "attn_q", false), "attn_q.scale");
        const ValueId k = b.ScaleBy(b.ToKvHeads(h, "attn_k", false), "attn_k.scale");
        const ValueId v = b.ScaleBy(b.ToKvHeads(h, "attn_v", false), "attn_v.scale");
        const ValueId a =
            b.FromHeads(b.Attention(b.Rope(q, false), b.Rope(k, false), v), "attn_output");
        x = b.Add(x, b.Add(b.ScaleBy(a, "attn_output.scale"), b.Mamba2(h)));

        // (llama.cpp's converter omits the suffix ".weight".)
        const char* const part = b.Has("ffn_norm") ? "" : "weight";
        const ValueId m = b.NormBy(x, "ffn_norm", part, b.hyper().hidden);
        const ValueId gate = b.ScaleBy(b.ToFfn(m, "ffn_gate"), "ffn_gate.scale");
        const ValueId down = b.FromFfn(b.Gated(gate, b.ToFfn(m, "ffn_up")), "ffn_down");
        x = b.Add(x, b.ScaleBy(down, "ffn_down.scale"));
    }
    return x;
}

namespace {

constexpr Architecture kFalconH1Table[] = {
    {.family = {"falcon-h1", "Falcon-H1", "attention beside Mamba-2 in each layer",
                "falconH1, falconH1Biases, falconH1Normed"},
     .build = BuildFalconH1,
     .traits = {.recurrent = Recurrent::Kind::kMamba2}},
};

}  // namespace

extern const std::span<const Architecture> kFalconH1Family = kFalconH1Table;

}  // namespace weft::model
