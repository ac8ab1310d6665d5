// Hyper-parameters of a transformer, read from a model's metadata.
//
// Keys follow the GGUF specification ("llama.block_count", ...); Hugging Face folders are mapped to
// the same keys. All values are checked here, so that builders need not check them.
#pragma once

#include <algorithm>
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
#include "tensor/ungated.h"

namespace weft::model {

// Head counts and sizes of one layer.
struct HeadShape {
    int64_t kv_heads = 0, head_dim = 0, rotary_dim = 0;
    int64_t heads = 0;       // query heads; 0: as many as Hyper::heads
    int64_t v_head_dim = 0;  // columns of a value; 0: head_dim
    int64_t ValueDim() const { return v_head_dim == 0 ? head_dim : v_head_dim; }
    bool operator==(const HeadShape&) const = default;
};

// Gemma 3n's residual streams, and its MLPs with few active columns (alt_up.cc).
struct AltUp {
    int64_t streams = 0;            // copies of the residual stream; 0: the model is not Gemma 3n
    int64_t laurel_rank = 0;        // columns between the two matrices of LAuReL
    std::vector<float> deviations;  // by layer; not finite: the layer's gates are not cut
};

struct Hyper {
    std::string architecture;  // "llama", "qwen2", "gemma3", ...
    // A token sees all tokens of its text, in windowed layers window - 1 on each side. The model
    // makes vectors and scores, and writes no text.
    bool encoder = false;
    int64_t token_types = 0;  // rows of the table of token types (segments); 0: none
    int64_t layers = 0;
    int64_t hidden = 0;  // columns of the residual stream
    int64_t ffn = 0;     // columns of the MLP of the widest layer
    int64_t heads = 0;   // query heads
    int64_t kv_heads = 0;
    int64_t head_dim = 0;
    int64_t rotary_dim = 0;
    int64_t v_head_dim = 0;    // columns of a value; 0: head_dim
    int64_t vocab = 0;         // rows of the embedding table
    int64_t context = 0;       // trained context in tokens, extended by YaRN's factor
    float rms_eps = 1e-5f;     // epsilon of norms
    bool layer_norm = false;   // norms subtract the mean (LayerNorm)
    bool end_biases = false;   // norms and the output matrix may have biases
    bool plain_norms = false;  // norms have no weights
    float value_scale = 1;     // factor on values
    // Limits of gated units by layer; 0: none (program::Glu::limit). Empty: no layer has one.
    std::vector<float> expert_limits, shared_limits;  // shared_limits: also for dense MLPs
    bool limits_gate = false;                         // limits also apply to the gate
    HeadShape windowed_heads;  // heads of windowed layers, if they differ from other layers (Gemma
                               // 4); else all 0
    Latent latent;             // latent attention, if the model has it
    Indexer indexer;           // chooses the positions that attention reads, if the model has one
    Windowing windowing;       // DeepSeek-V4's attention and streams
    AltUp alt_up;              // Gemma 3n's streams
    Moe moe;                   // experts, if the model has any
    Recurrent recurrent;       // layers with recurrent state, if the model has any
    Ropes ropes;
    int64_t window = 0;          // number of keys that a query of a windowed layer sees, including
                                 // its own
    bool chunked = false;        // windowed layers attend within chunks of `window` keys instead of
                                 // a sliding window
    std::vector<bool> windowed;  // by layer; empty: no layer is windowed
    bool unit_heads = false;  // after RoPE, a norm without a weight is applied to queries and keys
                              // (Llama 4)
    // For Gemma 4's small models. layer_columns: columns per layer of a per-layer embedding; 0:
    // none. shared_kv: number of last layers that read the KV cache of an earlier layer.
    int64_t layer_columns = 0, shared_kv = 0;
    std::vector<int64_t> ffn_columns;  // MLP columns by layer; empty: `ffn` in all layers
    std::vector<int64_t> kv_sources;   // for each layer, the layer whose KV cache it reads. Empty:
                                       // derived from shared_kv
    bool beside = false;               // the MLP reads the same row as attention
    float clamp = 0;                   // queries, keys and values are within +- this; 0: no limit
    float attention_scale = 0;         // factor on scores; 0: 1 / sqrt(head_dim)
    Temperature temperature;           // attention temperature of queries
    std::vector<float> slopes;         // of ALiBi, by query head; empty: none
    float attention_cap = 0;           // soft caps on scores and logits; 0: none
    float logit_cap = 0;
    float embedding_scale = 1, residual_scale = 1, logit_scale = 1;  // factors
    Activation activation = Activation::kSilu;
    std::optional<Ungated> ungated;  // MLPs and experts have this activation, and no gate
    bool gates_ungated = false;      // but dense MLPs have a gate, with this activation
    std::vector<Xielu> xielu;        // by layer, with Ungated::kXielu
    bool rotates = true;             // RoPE; false: attention has no positions
    std::vector<bool> rotated;       // by layer, with `rotates`; empty: all layers have RoPE
    bool sections = false;           // files have RoPE's sections of images (M-RoPE)
    bool tied = false;               // the output matrix is the embedding table
    // Layer `layers` of the file is a multi-token prediction head (draft_head.h).
    bool draft_head = false;
    std::string draft_fault;  // why the folder's head cannot be read
    // A separate EAGLE-3 or DFlash head (draft_head.h), at most one, which then replaces the
    // file's. Its vocab is that of drafts; `reads`: the layers of the model whose input it reads,
    // ascending.
    std::vector<Hyper> head;
    std::vector<int64_t> reads;
    bool norm_before_residual = false, norm_output = false;  // of an EAGLE-3 head
    // A DFlash head has a block of rows (0: another head). The rows that it drafts have the token
    // `mask`. In the layers `ahead`, a row also sees the later rows of its block.
    int64_t block = 0, mask = 0;
    std::vector<bool> ahead;
    // Rows of a block of the separate head; 0: there is no DFlash head.
    int64_t block_rows() const { return head.empty() ? 0 : head[0].block; }
    bool SeesAhead(int64_t layer) const {
        return encoder || (block > 0 && ahead[static_cast<size_t>(layer)]);
    }
    int64_t group() const { return heads / kv_heads; }
    bool has_state() const { return recurrent.heads > 0 || windowing.pools; }
    // Columns of the residual stream between layers, all streams together.
    int64_t stream_columns() const {
        return std::max({windowing.streams, alt_up.streams, int64_t{1}}) * hidden;
    }
    // Columns of a head that the output projection reads.
    int64_t value_dim() const {
        if (latent.rank > 0) return latent.value;
        return v_head_dim == 0 ? head_dim : v_head_dim;
    }
    bool IsWindowed(int64_t layer) const {
        const auto index = static_cast<size_t>(layer);  // (a draft head comes after the layers)
        return index < windowed.size() && windowed[index];
    }
    bool Rotates(int64_t layer) const {
        const auto index = static_cast<size_t>(layer);
        return rotates && (index >= rotated.size() || rotated[index]);
    }
    int64_t FfnOf(int64_t layer) const {
        const auto index = static_cast<size_t>(layer);
        return index < ffn_columns.size() ? ffn_columns[index] : ffn;
    }
    // The layer whose KV cache `layer` reads: `layer` itself, or the last layer of the same kind
    // that writes a cache.
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
    int64_t WindowedQueryHeads() const {
        return windowed_heads.heads == 0 ? heads : windowed_heads.heads;
    }
};

// Reads and checks the hyper-parameters. Errors: kUnsupported (names the architecture or feature
// and what is supported), kCorrupt (names the key).
Result<Hyper> ReadHyper(const model_files::ModelSource& source);

// Errors: kUsage if `tokens` exceeds hyper.context. asked: the option from which `tokens` comes, as
// the user wrote it, such as "--ctx 9000".
Status CheckContext(const Hyper& hyper, int64_t tokens, std::string_view asked);

}  // namespace weft::model
