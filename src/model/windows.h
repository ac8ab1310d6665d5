// DeepSeek-V4 (DeepSeek-AI 2026): hyper-connections (several residual streams), and attention to
// the last positions and to pooled windows of all earlier positions. This file reads the
// hyper-parameters of both from a model's metadata.
//
// Keys: attention.compress_ratios (for each layer, the positions per window; 0: no windows),
// attention.q_lora_rank, output_lora_rank and output_group_count, attention.indexer.{head_count,
// key_length, top_k}, hyper_connection.{count, sinkhorn_iterations, epsilon}, hash_layer_count,
// sliding_window. Hy4 has only hyper_connection.{count, epsilon, magnitude}; GLM-5-next has
// hyper_connection.{count, sinkhorn_iterations, epsilon}.
// Tensors: output_hc_{fn, base, scale}; blk.N.hc_{attn, ffn}_{fn, base, scale}; attn_q_a,
// attn_q_a_norm, attn_q_b, attn_kv, attn_kv_a_norm, attn_sinks, attn_output_a (a matrix per group
// of heads), attn_output_b; in layers with windows, attn_compressor_{kv, gate, ape, norm}; in
// layers with short windows, also indexer.{proj, attn_q_b} and indexer_compressor_{kv, gate, ape,
// norm}, where kv, gate and ape have two series each; ffn_gate_tid2eid (experts by token id) or
// exp_probs_b.bias.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/latent.h"
#include "model_files/model_file.h"

namespace weft::model {

struct Windowing {
    int64_t streams = 0;     // residual streams; 0: the model has one, without hyper-connections
    int64_t iterations = 1;  // Sinkhorn iterations, which make a mixture doubly stochastic
    float eps = 0;
    bool mean = false;         // after the last layer, the mean of the streams is used
    bool independent = false;  // streams are not mixed (Hy4)
    float magnitude = 2;       // with `independent`: the highest weight of what is added
    int64_t q_rank = 0;        // columns of the query's latent
    int64_t out_groups = 0, out_rank = 0;  // number of groups of heads; columns of a group's result
    std::vector<int64_t> strides;          // positions per window of each layer; 0: no windows
    bool pools = false;                    // some layer has windows
    int64_t hashed = 0;                    // the first `hashed` layers choose experts by token id
    int64_t StrideOf(int64_t layer) const { return strides[static_cast<size_t>(layer)]; }
    // Short windows have two series (see above), and an indexer chooses some of the windows.
    static bool IsShort(int64_t stride) { return stride == 4; }
};

// In the result, streams == 0 means that the model has no hyper-connections. heads: number of query
// heads. Errors: kCorrupt, kNotFound, kUnsupported (the message names the key).
Result<Windowing> ReadWindowing(const model_files::ModelSource& source,
                                const std::string& architecture, int64_t heads, int64_t layers);

}  // namespace weft::model
