// Encoders: each token sees all tokens of its text; and ModernBERT's decoders.
//
// BERT (Devlin et al. 2018), RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2019) and
// DistilBERT (Sanh et al. 2019): vectors of tokens, positions and types are added and normed.
// LayerNorms follow attention and the MLP, so there is no final norm.
//
// ModernBERT (Warner et al. 2024): RoPE, GeGLU, norms before each part except the first; most
// layers have a window. Ettin's decoders (Weller et al. 2025) have the same layers, and a dense
// layer before the output matrix.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

static ValueId BuildBert(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId q = b.ToHeads(x, "attn_q", false), k = b.ToKvHeads(x, "attn_k", false);
        const ValueId a = b.Attention(q, k, b.ToKvHeads(x, "attn_v", false));
        x = b.Norm(b.Add(x, b.FromHeads(a, "attn_output")), "attn_output_norm", hidden);
        x = b.Norm(b.Add(x, b.Mlp(x)), "layer_output_norm", hidden);
    }
    return x;
}

static ValueId BuildModernBert(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = layer == 0 ? x : b.Norm(x, "attn_norm", hidden);
        x = b.Add(x, RotatedAttention(b, h, false));
        x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", hidden)));
    }
    return x;
}

namespace {

constexpr Architecture kBertTable[] = {
    {.family = {"bert", "BERT, RoBERTa, XLM-RoBERTa, DistilBERT: MiniLM, bge, e5, gte (folders)",
                "an encoder: attention to later tokens; learned positions and token types; "
                "LayerNorm behind each part",
                "bert, roberta, distilbert"},
     .build = BuildBert,
     .traits = {.encoder = true,
                .norms = Norms::kLayer,
                .ungated = Ungated::kGelu,
                .rotates = false,
                .norms_embedding = true}},
    {.family = {"modern-bert", "ModernBERT: gte-modernbert, ModernBERT-embed (folders)",
                "an encoder: attention to later tokens, within windows except in each third layer",
                "modernBert, modernBertMean"},
     .build = BuildModernBert,
     .traits = {.encoder = true,
                .window_pattern = 3,
                .first_sees_all = true,
                .norms = Norms::kLayer,
                .ungated = Ungated::kGelu,
                .gates_ungated = true,
                .windowed_base = 10000,
                .norms_embedding = true}},
    {.family = {"modern-bert-decoder", "Ettin decoders (folders)",
                "LayerNorm, GeGLU, windows, RoPE of two bases, a dense layer before the output",
                "modernBertDecoder"},
     .build = BuildModernBert,
     .traits = {.norms = Norms::kLayer,
                .ungated = Ungated::kGelu,
                .gates_ungated = true,
                .windowed_base = 10000,
                .norms_embedding = true}},
};

}  // namespace

extern const std::span<const Architecture> kBertFamily = kBertTable;

}  // namespace weft::model
