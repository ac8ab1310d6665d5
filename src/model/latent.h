// Multi-head latent attention (DeepSeek-AI 2024): what a model's metadata says of it.
//
// Keys: attention.kv_lora_rank, attention.q_lora_rank, rope.dimension_count, and the columns of a
// head, attention.key_length_mla and value_length_mla (older files: key_length, value_length).
// Tensors: blk.N.attn_q_a and attn_q_b (or attn_q), attn_kv_a_mqa, and for each head attn_k_b
// [rank, nope] and attn_v_b [value, rank] (older files: both in attn_kv_b, keys transposed).
//
// Mistral Large 4 has more: rope.layers (by layer, whether its heads have rotated columns),
// attention.kv_source_layers (by layer, whose latents it reads; not its own: it has no
// attn_kv_a_mqa), and attn_temperature [heads]: a query at position p is multiplied by
// weight * log(p + 1) + bias. Weft's own names: no other program writes such files.
//
// Sparse attention (DeepSeek-AI 2025, "DeepSeek-V3.2"): an indexer chooses the positions that a row
// attends to.
// Keys: attention.indexer.head_count, key_length, top_k, and types: by layer, whether it has an
// indexer; one without takes the choice of the layer before. Tensors: blk.N.indexer.attn_q_b
// [heads * dim, q_rank] and attn_k [dim, hidden], its LayerNorm k_norm, and the weights of heads
// proj [heads, hidden]. The first `rope` columns of a head are rotated. (The original turns queries
// and keys by a Hadamard matrix before it rounds them to FP8, which changes no dot product: Weft
// rounds keys to the type of the cache, and turns none.) Mistral Large 4's attn_q_b is of the
// hidden row's LayerNorm, q_norm; `temperature` is as attn_temperature above.
//
// Block-sparse attention (MiniMax 2026, "MiniMax-M3"): an indexer with a query head for each KV
// head chooses blocks of positions. Keys: attention.indexer.head_count, key_length, block_size,
// top_k (blocks) and local_blocks; types, where a layer without an indexer sees all positions.
// Tensors: blk.N.indexer.q_proj [heads * dim, hidden] and k_proj [dim, hidden], and their norms of
// a head, q_norm and k_norm.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model {

struct Latent {
    int64_t rank = 0;    // columns of the latent that is cached; 0: the model has none
    int64_t q_rank = 0;  // of the query's latent; 0: queries are projected at once
    int64_t nope = 0;    // columns of a head's key that are not rotated
    int64_t rope = 0;    // and that are, shared by all heads
    int64_t value = 0;   // columns of a head's value
    bool rotates = true;  // else the `rope` columns keep no position (Kimi Linear)
    // By layer: its heads have no rotated columns, but as many more of the others (Mistral Large
    // 4). Empty: none.
    std::vector<bool> plain = {};
    bool scales = false;      // queries grow with the logarithm of the position, by head
    bool IsPlain(int64_t layer) const {
        return !plain.empty() && plain[static_cast<size_t>(layer)];
    }
};

struct HeadShape;  // hyper.h

struct Indexer {
    int64_t top = 0;  // positions that it chooses for a row; 0: the model has no indexer
    int64_t heads = 0, dim = 0;
    int64_t block = 0;  // not 0: it chooses top / block blocks of so many for each KV head,
    int64_t local = 0;  // the last `local` ones always; and it has no weights of heads
    bool neighbours = false;  // RoPE turns neighbouring columns; else the halves of the first
    // Queries are made of the hidden rows' LayerNorm, and grow with the logarithm of the position
    // (Mistral Large 4).
    bool from_hidden = false;
    float eps = 1e-6f;  // of the LayerNorms
    // By layer: it has an indexer of its own. Empty: all have; of blocks those with its tensors.
    std::vector<bool> own = {};
    bool IsOwn(int64_t layer) const {  // a draft head, behind the layers, does
        const auto index = static_cast<size_t>(layer);
        return index >= own.size() || own[index];
    }
};

// rank == 0 where the model has none. Errors: kCorrupt, kUnsupported, naming the key.
Result<Latent> ReadLatent(const model_files::ModelSource& source, const std::string& architecture);

// top == 0 where the model has none. Errors: kCorrupt, kNotFound, kUnsupported, naming the key.
Result<Indexer> ReadIndexer(const model_files::ModelSource& source, const std::string& architecture,
                            const Latent& latent, int64_t layers, const HeadShape& heads);

}  // namespace weft::model
