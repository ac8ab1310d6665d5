// Hyper-parameters of a decoder-only transformer, read from a model's metadata.
//
// Key names follow the GGUF specification ("llama.block_count", ...), which HF folders will be
// mapped to as well. Everything is checked here, so that builders may trust it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/latent.h"
#include "model/moe.h"
#include "model/recurrent.h"
#include "model/rope.h"
#include "model/windows.h"
#include "model_files/model_file.h"
#include "tensor/activation.h"
#include "tensor/temperature.h"

namespace weft::model {

// Heads of one layer.
struct HeadShape {
    int64_t kv_heads = 0, head_dim = 0, rotary_dim = 0;
    int64_t heads = 0;       // of queries; 0: as many as the model has
    int64_t v_head_dim = 0;  // columns of a value; 0: head_dim
    int64_t ValueDim() const { return v_head_dim == 0 ? head_dim : v_head_dim; }
    bool operator==(const HeadShape&) const = default;
};

struct Hyper {
    std::string architecture;   // "llama", "qwen2", "gemma3", ...
    int64_t layers = 0;
    int64_t hidden = 0;         // columns of the residual stream
    int64_t ffn = 0;            // columns of the MLP, of the widest layer
    int64_t heads = 0;          // query heads
    int64_t kv_heads = 0;
    int64_t head_dim = 0;
    int64_t rotary_dim = 0;
    int64_t v_head_dim = 0;     // columns of a value; 0: head_dim
    int64_t vocab = 0;          // rows of the embedding table
    int64_t context = 0;        // tokens of the training, extended by YaRN's factor
    float rms_eps = 1e-5f;      // of norms
    bool layer_norm = false;    // norms take the mean away
    float value_scale = 1;      // of values
    // Of gated units, by layer, 0: none (program::Glu::limit). Empty: no layer has any.
    std::vector<float> expert_limits, shared_limits;  // the latter of dense MLPs, too
    bool limits_gate = false;   // limits are of the gate itself
    HeadShape windowed_heads;   // of windowed layers, where theirs differ (Gemma 4); else all 0
    Latent latent;              // latent attention, where the model has it
    Indexer indexer;            // that chooses its positions, where the model has one
    Windowing windowing;        // DeepSeek-V4's attention and streams; others have none
    Moe moe;                    // experts, where the model has any
    Recurrent recurrent;        // layers with recurrent state, where the model has any
    Ropes ropes;
    int64_t window = 0;         // keys that a query of a windowed layer sees, its own included
    bool chunked = false;       // windowed layers attend within chunks of `window` keys instead
    std::vector<bool> windowed; // by layer; empty where no layer is
    bool unit_heads = false;    // queries and keys are normed without a weight after RoPE (Llama 4)
    // Gemma 4's small models: columns that each layer takes of an embedding of its own (0: none),
    // and how many of the last layers read the KV cache of an earlier one.
    int64_t layer_columns = 0, shared_kv = 0;
    std::vector<int64_t> ffn_columns;  // of the MLP by layer; empty: `ffn` in all layers
    std::vector<int64_t> kv_sources;  // by layer, whose KV cache it reads. Empty: by shared_kv
    float attention_scale = 0;  // of scores; 0: 1 / sqrt(head_dim)
    Temperature temperature;    // of queries
    float attention_cap = 0;    // soft caps of scores and logits; 0: none
    float logit_cap = 0;
    float embedding_scale = 1, residual_scale = 1, logit_scale = 1;  // factors
    Activation activation = Activation::kSilu;
    bool ungated = false;       // MLPs and experts have no gate, but ReLU squared
    bool rotates = true;        // RoPE; else attention has no positions
    bool tied = false;          // the output matrix is the embedding table
    // Layer `layers` of the file is a multi-token prediction head (draft_head.h).
    bool draft_head = false;
    int64_t group() const { return heads / kv_heads; }
    bool has_state() const { return recurrent.heads > 0 || windowing.pools; }
    // Columns of a row that goes from layer to layer.
    int64_t stream_columns() const {
        return windowing.streams > 0 ? windowing.streams * hidden : hidden;
    }
    // Columns of a head that the output projection takes.
    int64_t value_dim() const {
        if (latent.rank > 0) return latent.value;
        return v_head_dim == 0 ? head_dim : v_head_dim;
    }
    bool IsWindowed(int64_t layer) const {
        const auto index = static_cast<size_t>(layer);  // (a draft head stands behind the layers)
        return index < windowed.size() && windowed[index];
    }
    int64_t FfnOf(int64_t layer) const {
        const auto index = static_cast<size_t>(layer);
        return index < ffn_columns.size() ? ffn_columns[index] : ffn;
    }
    // The layer whose KV cache this one reads: the last of its kind that writes one.
    int64_t KvLayer(int64_t layer) const {
        if (layer >= layers) return layer;  // a draft head
        if (!kv_sources.empty()) return kv_sources[static_cast<size_t>(layer)];
        int64_t source = layer;
        const int64_t writers = layers - shared_kv;
        while (source >= writers || (source < layer && IsWindowed(source) != IsWindowed(layer))) {
            if (source-- == 0) return layer;
        }
        return source;
    }
    HeadShape HeadsOf(int64_t layer) const {
        HeadShape shape{kv_heads, head_dim, rotary_dim, heads, v_head_dim};
        if (windowed_heads.head_dim != 0 && IsWindowed(layer)) shape = windowed_heads;
        if (shape.heads == 0) shape.heads = heads;
        return shape;
    }
    // Query heads of layers with a window.
    int64_t WindowedQueryHeads() const {
        return windowed_heads.heads == 0 ? heads : windowed_heads.heads;
    }
};

// Reads and checks the hyper-parameters. Errors: kUnsupported (names the architecture or feature
// and what is supported), kCorrupt (names the key).
Result<Hyper> ReadHyper(const model_files::ModelSource& source);

// Refuses more tokens than hyper.context. asked: the words in which the user asked for them, for
// example "--ctx 9000". Errors: kUsage.
Status CheckContext(const Hyper& hyper, int64_t tokens, std::string_view asked);

}  // namespace weft::model
