// Multi-head latent attention (DeepSeek-AI 2024): its hyper-parameters in a model's metadata.
//
// Keys: attention.kv_lora_rank, attention.q_lora_rank, rope.dimension_count, and the columns of a
// head, attention.key_length_mla and value_length_mla (older files: key_length, value_length).
// Tensors: blk.N.attn_q_a and attn_q_b (or attn_q), attn_kv_a_mqa, and for each head attn_k_b
// [rank, nope] and attn_v_b [value, rank] (older files: both in attn_kv_b, with transposed keys).
//
// Mistral Large 4 adds: rope.layers (for each layer, whether its heads have rotated columns),
// attention.kv_source_layers (for each layer, the layer whose latents it reads; a layer that reads
// the latents of another layer has no attn_kv_a_mqa), and attn_temperature [heads]: a query at
// position p is multiplied by weight * log(p + 1) + bias. These names are Weft's own; no other
// program writes such files.
//
// Sparse attention (DeepSeek-AI 2025, "DeepSeek-V3.2"): an indexer chooses the positions that a row
// attends to.
// Keys: attention.indexer.head_count, key_length, top_k, and types (for each layer, whether it has
// an indexer; a layer without an indexer uses the positions that the layer before it uses).
// Tensors: blk.N.indexer.attn_q_b [heads * dim, q_rank] and attn_k [dim, hidden], its LayerNorm
// k_norm, and the head weights proj [heads, hidden]. The first `rope` columns of a head are
// rotated. (The original multiplies queries and keys by a Hadamard matrix before rounding them to
// FP8, which does not change dot products. Weft rounds keys to the cache's type and omits the
// Hadamard matrix.) In Mistral Large 4, attn_q_b reads the hidden row after a LayerNorm (q_norm),
// and a tensor `temperature` has the same meaning as attn_temperature above.
//
// GLM-5-next adds attention.indexer.kpool (positions of a window), and the tensors
// blk.N.indexer_compressor_gate [dim, hidden] and indexer_compressor_ape [dim, kpool], which weigh
// the keys of a window.
//
// Block-sparse attention (MiniMax 2026, "MiniMax-M3"): an indexer with a query head for each KV
// head chooses blocks of positions. Keys: attention.indexer.head_count, key_length, block_size,
// top_k (blocks), local_blocks, and types (a layer without an indexer attends to all positions).
// Tensors: blk.N.indexer.q_proj [heads * dim, hidden] and k_proj [dim, hidden], and their per-head
// norms q_norm and k_norm.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model {

struct Latent {
    int64_t rank = 0;    // columns of the cached latent; 0: the model has no latent attention
    int64_t q_rank = 0;  // columns of the query's latent; 0: queries are projected directly
    int64_t nope = 0;    // columns of a head's key without rotation
    int64_t rope = 0;   // rotated columns of a key, which all heads share; 0: the key is the latent
    int64_t value = 0;  // columns of a head's value
    bool rotates = true;  // false: the `rope` columns are not rotated (Kimi Linear)
    // For each layer: whether its heads have, in place of the rotated columns, `rope` further
    // columns without rotation (Mistral Large 4). Empty: no layer has.
    std::vector<bool> plain = {};
    float eps = 1e-6f;    // epsilon of the norms of latents
    bool scales = false;  // queries are multiplied by factors per head that grow with the
                          // logarithm of the position
    bool IsPlain(int64_t layer) const {
        return !plain.empty() && plain[static_cast<size_t>(layer)];
    }
};

struct HeadShape;  // hyper.h

struct Indexer {
    int64_t top = 0;  // number of positions that the indexer chooses per row; 0: the model has no
                      // indexer
    // The indexer chooses windows of this many positions, whose keys are means (GLM-5-next). The
    // positions that are in no window yet are chosen as well.
    int64_t stride = 1;
    int64_t heads = 0, dim = 0;
    int64_t block = 0;  // not 0: the indexer chooses top / block blocks of this many positions for
                        // each KV head, and has no head weights
    int64_t local = 0;  // with `block`: the last `local` blocks are always chosen
    bool neighbours = false;  // RoPE pairs neighboring columns; else column i with i + rope / 2
    // Queries are projected from the hidden row after a LayerNorm, and are multiplied by a factor
    // that grows with the logarithm of the position (Mistral Large 4).
    bool from_hidden = false;
    float eps = 1e-6f;  // epsilon of the LayerNorms
    // For each layer: whether it has its own indexer. Empty: all layers have one. With `block`,
    // those layers have one that have the tensors of an indexer.
    std::vector<bool> own = {};
    bool IsOwn(int64_t layer) const {  // a draft head, which comes after the layers, has one
        const auto index = static_cast<size_t>(layer);
        return index >= own.size() || own[index];
    }
};

// In the result, rank == 0 means that the model has no latent attention. Errors: kCorrupt,
// kUnsupported (the message names the key).
Result<Latent> ReadLatent(const model_files::ModelSource& source, const std::string& architecture);

// In the result, top == 0 means that the model has no indexer. Errors: kCorrupt, kNotFound,
// kUnsupported (the message names the key).
Result<Indexer> ReadIndexer(const model_files::ModelSource& source, const std::string& architecture,
                            const Latent& latent, int64_t layers, const HeadShape& heads);

}  // namespace weft::model
