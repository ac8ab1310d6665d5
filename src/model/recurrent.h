// Layers with recurrent state: their hyper-parameters in a model's metadata.
//
// Gated delta nets. Keys: ssm.conv_kernel, ssm.state_size (columns of a key head), ssm.group_count
// (key heads), ssm.time_step_rank (value heads), ssm.inner_size (columns of all value heads).
// Tensors of such a layer: blk.N.attn_qkv (queries, keys and values of all heads), attn_gate,
// ssm_conv1d, ssm_a, ssm_dt, ssm_norm, ssm_out, and the projections to decays and strengths: ssm_ba
// (Qwen3-Next: for each key head, first the strengths of its value heads, then the decays of its
// value heads), or ssm_beta and ssm_alpha (Qwen 3.5, OLMo-Hybrid).
//
// Mamba-2 has the same keys. The heads of Mamba-2 are value heads here; its groups, whose heads
// share B and C, are key heads. Tensors: ssm_in (gates z, then x of all heads, B and C of all
// groups, and one step size per head), ssm_conv1d (for x, B and C), ssm_a, ssm_d, ssm_dt, ssm_norm,
// ssm_out.
//
// Mamba (Gu and Dao 2023): its channels are value heads of one column, which share one key head.
// Keys: ssm.conv_kernel, ssm.state_size, ssm.time_step_rank, ssm.inner_size (channels) and
// ssm.dt_b_c_rms (steps, B and C are normed without weights). Tensors: ssm_in (x, then gates z),
// ssm_conv1d, ssm_x (the latent of steps, B and C), ssm_dt, ssm_a, ssm_d, ssm_out; Jamba's
// ssm_dt_norm, ssm_b_norm and ssm_c_norm.
//
// Kimi Delta Attention (Kimi team 2025). Keys: ssm.conv_kernel, kda.head_dim. The number of heads
// is that of attention. Tensors: attn_q, attn_k, attn_v, ssm_conv1d_q, ssm_conv1d_k, ssm_conv1d_v,
// ssm_f_a and ssm_f_b (decays), ssm_beta (strengths), ssm_a, ssm_dt, ssm_g_a and ssm_g_b (gates),
// ssm_norm, attn_output. In Ling 3, the full matrices ssm_f_a and ssm_g_a replace the low-rank
// pairs, and decays are bounded (kda.gate_lower_bound).
//
// Gated short convolutions (LFM2). Key: shortconv.l_cache. Tensors: shortconv.in_proj (the rows of
// B, then C, then x), shortconv.conv, shortconv.out_proj.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model {

struct Recurrent {
    // kShortConv: a "head" is a block of value_dim columns, which is never divided between ranks.
    enum class Kind { kDeltaNet, kKimiDelta, kMamba, kMamba2, kShortConv };
    int64_t heads = 0;      // value heads, each with a state; 0: the model has no such layers
    int64_t key_heads = 0;  // query and key heads, each shared by several value heads
    int64_t key_dim = 0, value_dim = 0;
    int64_t taps = 0;  // width of the convolution
    // Value head h uses key head h % key_heads if set, else key head h / group().
    bool cycles = false;
    bool whole_groups = false;  // the value heads of a key head always stay on one rank
    Kind kind = Kind::kDeltaNet;
    int64_t step_rank = 0;             // Mamba: columns of the latent of steps
    bool norms_steps = false;          // Mamba: steps, B and C are normed without weights
    float floor = 0;                   // lower bound of decays (program::DeltaRule)
    bool doubles = false;              // strengths are twice a sigmoid (ssm.allow_neg_eigval)
    float norm_eps = 0;                // epsilon of ssm_norm (ssm.norm_rms_epsilon); 0: the model's
    const char* OutputTensor() const;  // tensor name, without "blk.N." and ".weight"
    int64_t group() const { return heads / key_heads; }
};

// In the result, heads == 0 means that the model has no such layers. hidden: columns of the
// residual stream. Errors: kCorrupt, kUnsupported (the message names the key).
Result<Recurrent> ReadRecurrent(const model_files::ModelSource& source, int64_t layers,
                                const std::string& architecture, int64_t hidden);

// Whether the layer has recurrent state. Otherwise it has attention.
bool IsRecurrent(const model_files::ModelSource& source, int64_t layer);

}  // namespace weft::model
