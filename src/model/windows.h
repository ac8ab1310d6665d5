// DeepSeek-V4 (DeepSeek-AI 2026): hyper-connections, and attention to the last positions and to
// pooled windows of all before: what a model's metadata says of them.
//
// Keys: attention.compress_ratios (by layer: positions of a window, 0 for none), attention
// .q_lora_rank, output_lora_rank and output_group_count, attention.indexer.{head_count, key_length,
// top_k}, hyper_connection.{count, sinkhorn_iterations, epsilon}, hash_layer_count, sliding_window.
// Tensors: output_hc_{fn, base, scale}; blk.N.hc_{attn, ffn}_{fn, base, scale}; attn_q_a,
// attn_q_a_norm, attn_q_b, attn_kv, attn_kv_a_norm, attn_sinks, attn_output_a (a matrix for each
// group of heads), attn_output_b; of layers with windows attn_compressor_{kv, gate, ape, norm}, and
// where these are short indexer.{proj, attn_q_b} and indexer_compressor_{kv, gate, ape, norm}, kv,
// gate and ape of two series each; ffn_gate_tid2eid (experts by token) or exp_probs_b.bias.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/latent.h"
#include "model_files/model_file.h"

namespace weft::model {

struct Windowing {
    int64_t streams = 0;     // of the residual; 0: the model is no DeepSeek-V4
    int64_t iterations = 1;  // that make a mixture doubly stochastic
    float eps = 0;
    int64_t q_rank = 0;                    // of the query's latent
    int64_t out_groups = 0, out_rank = 0;  // of heads; columns of a group's result
    std::vector<int64_t> strides;          // by layer: positions of a window, 0 without
    bool pools = false;                    // a layer has windows
    int64_t hashed = 0;                    // first layers, whose experts go by the token
    int64_t StrideOf(int64_t layer) const { return strides[static_cast<size_t>(layer)]; }
    // Two series, and an indexer that chooses windows.
    static bool IsShort(int64_t stride) { return stride == 4; }
};

// streams == 0 where the model has none. `heads`: query heads. Errors: kCorrupt, kNotFound,
// kUnsupported, naming the key.
Result<Windowing> ReadWindowing(const model_files::ModelSource& source,
                                const std::string& architecture, int64_t heads, int64_t layers);

}  // namespace weft::model
