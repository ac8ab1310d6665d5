#include "model/layers.h"

namespace weft::model {

using program::ValueId;

ValueId RotatedAttention(Builder& b, ValueId h, bool neighbors, bool biases) {
    const ValueId q = b.Rope(b.ToHeads(h, "attn_q", biases), neighbors);
    const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", biases), neighbors);
    const ValueId v = b.ToKvHeads(h, "attn_v", biases);
    return b.FromHeads(b.Attention(q, k, v), "attn_output");
}

ValueId NormedAttention(Builder& b, ValueId h, bool normed) {
    const int64_t head_dim = b.hyper().head_dim;
    ValueId q = b.ToHeads(h, "attn_q", false);
    ValueId k = b.ToKvHeads(h, "attn_k", false);
    if (normed) {
        q = b.Norm(q, "attn_q_norm", head_dim);
        k = b.Norm(k, "attn_k_norm", head_dim);
    }
    const ValueId v = b.ToKvHeads(h, "attn_v", false);
    return b.FromHeads(b.Attention(b.Rope(q, false), b.Rope(k, false), v), "attn_output");
}

ValueId LlamaLayers(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) {
        const ValueId q = b.Rope(b.Tempered(b.Clamped(b.ToHeads(h, "attn_q", false))), true);
        const ValueId k = b.Rope(b.Clamped(b.ToKvHeads(h, "attn_k", false)), true);
        const ValueId v = b.Clamped(b.ToKvHeads(h, "attn_v", false));
        return b.FromHeads(b.Attention(q, k, v), "attn_output");
    });
}

ValueId RotatedLayers(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) { return RotatedAttention(b, h, false); });
}

ValueId NormedHeadLayers(Builder& b, ValueId x) {
    const int64_t head_dim = b.hyper().head_dim;
    return PreNormLayers(b, x, [&](ValueId h) {
        const ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
        const ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v, b.ChosenBlocks(h));
        return b.FromHeads(a, "attn_output");
    });
}

ValueId NormedRowLayers(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) {
        const auto [q, k] =
            b.NormHeads({b.ToHeads(h, "attn_q", false), b.ToKvHeads(h, "attn_k", false)});
        const ValueId v = b.Clamped(b.ToKvHeads(h, "attn_v", false));
        const ValueId a = b.Attention(b.Rope(b.Clamped(q), false), b.Rope(b.Clamped(k), false), v);
        return b.FromHeads(a, "attn_output");
    });
}

ValueId GatedNormLayers(Builder& b, ValueId x, bool neighbors, float post_eps) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden, head_dim = b.hyper().head_dim;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
        ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
        if (b.IsWindowed()) {
            q = b.Rope(q, neighbors);
            k = b.Rope(k, neighbors);
        }
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.GateHeads(b.Attention(q, k, v), h, program::RowGate::kSigmoid);
        x = b.Add(x, b.NormWithin(b.FromHeads(a, "attn_output"), "post_attention_norm", hidden,
                                  post_eps));

        const ValueId y = b.Mlp(b.Norm(x, "ffn_norm", hidden));
        x = b.Add(x, b.NormWithin(y, "post_ffw_norm", hidden, post_eps));
    }
    return x;
}

ValueId GatedHeadLayers(Builder& b, ValueId x, program::RowGate gate) {
    const int64_t head_dim = b.hyper().head_dim;
    return PreNormLayers(b, x, [&](ValueId h) {
        const ValueId q = b.Norm(b.ToHeads(h, "attn_q", false), "attn_q_norm", head_dim);
        const ValueId k = b.Norm(b.ToKvHeads(h, "attn_k", false), "attn_k_norm", head_dim);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a = b.Attention(b.Rope(q, false), b.Rope(k, false), v);
        return b.FromHeads(b.GateHeads(a, h, gate), "attn_output");
    });
}

ValueId ScaledLayers(Builder& b, ValueId x, bool neighbors) {
    const int64_t hidden = b.hyper().hidden;
    const auto rotated = [&](ValueId heads) {
        return b.Rotates() ? b.Rope(heads, neighbors) : heads;
    };
    const auto normed = [&](ValueId part, const std::string& norm) {
        return b.Has(norm + ".weight") ? b.Norm(part, norm, hidden) : part;
    };
    const auto attend = [&](ValueId h) {
        const ValueId q = rotated(b.ToHeads(h, "attn_q", false));
        const ValueId k = rotated(b.ToKvHeads(h, "attn_k", false));
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        return b.FromHeads(b.Attention(q, k, v), "attn_output");
    };
    const float residual = b.hyper().residual_scale;
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        const ValueId a = b.HasState() ? b.Mamba2(h) : attend(h);
        x = b.Add(x, b.Scale(normed(a, "post_attention_norm"), residual));

        const ValueId m = b.Mlp(b.Norm(x, "ffn_norm", hidden));
        x = b.Add(x, b.Scale(normed(m, "post_ffw_norm"), residual));
    }
    return x;
}

ValueId ScaledLayers(Builder& b, ValueId x) {
    return ScaledLayers(b, x, true);
}

ValueId GptLayers(Builder& b, ValueId x, bool neighbors) {
    const auto rotated = [&](ValueId heads) {
        return b.hyper().rotates ? b.Rope(heads, neighbors) : heads;
    };
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const bool before = !b.Has("layer_output_norm.weight");
        const ValueId first = x, h = before ? b.Norm(x, "attn_norm", hidden) : x;
        const ValueId read = b.Has("attn_norm_2.weight") ? b.Norm(x, "attn_norm_2", hidden) : h;
        ValueId q = b.Clamped(b.ToHeads(read, "attn_q", false));
        ValueId k = b.Clamped(b.ToKvHeads(read, "attn_k", false));
        const ValueId v = b.Clamped(b.ToKvHeads(read, "attn_v", false));
        if (b.Has("attn_q_norm.weight")) {
            q = b.NormApart(q, "attn_q_norm", false);
            k = b.NormApart(k, "attn_k_norm", true);
        }
        x = b.Add(x, b.FromHeads(b.Attention(rotated(q), rotated(k), v), "attn_output"));
        if (!before) {
            x = b.Norm(x, "attn_output_norm", hidden);
            x = b.Norm(b.Add(x, b.Mlp(x)), "layer_output_norm", hidden);
            continue;
        }
        // (llama.cpp has this name for DBRX's norm.)
        const char* const norm = b.Has("attn_output_norm.weight") ? "attn_output_norm" : "ffn_norm";
        const bool normed = b.Has(norm + std::string(".weight"));
        const ValueId m = normed ? b.Norm(b.hyper().beside ? first : x, norm, hidden) : h;
        x = b.Add(x, b.Mlp(m));
    }
    return x;
}

ValueId GptLayers(Builder& b, ValueId x) {
    return GptLayers(b, x, false);
}

ValueId LatentLayers(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) { return b.LatentAttention(h); });
}

ValueId KimiDeltaLayers(Builder& b, ValueId x) {
    return PreNormLayers(
        b, x, [&](ValueId h) { return b.HasState() ? b.KimiDelta(h) : b.LatentAttention(h); });
}

ValueId StreamLayers(Builder& b, ValueId x, ValueId (Builder::*attention)(ValueId)) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const Builder::Merged a = b.Merge(x, "attn");
        const ValueId h = b.Norm(a.x, "attn_norm", hidden);
        x = b.Mix(x, a, b.HasState() ? b.KimiDelta(h) : (b.*attention)(h));
        const Builder::Merged f = b.Merge(x, "ffn");
        x = b.Mix(x, f, b.Mlp(b.Norm(f.x, "ffn_norm", hidden)));
    }
    return x;
}

ValueId LatentStreamLayers(Builder& b, ValueId x) {
    return StreamLayers(b, x, &Builder::LatentAttention);
}

}  // namespace weft::model
