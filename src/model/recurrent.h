// Layers with recurrent state: what a model's metadata says of them.
//
// Gated delta nets. Keys: ssm.conv_kernel, ssm.state_size (columns of a key head), ssm.group_count
// (key heads), ssm.time_step_rank (value heads), ssm.inner_size (columns of all value heads).
// Tensors of such a layer: blk.N.attn_qkv (queries, keys, values of all heads), attn_gate,
// ssm_conv1d, ssm_a, ssm_dt, ssm_norm, ssm_out, and what decays and strengths are projected by:
// ssm_ba (Qwen3-Next: of each key head its value heads' strengths, then their decays), or ssm_beta
// and ssm_alpha (Qwen 3.5).
//
// Mamba-2 has the same keys: its heads are value heads, and its groups, whose heads share B and C,
// are key heads. Its tensors: ssm_in (gates z, then x of all heads, B and C of all groups, and a
// step of each head), ssm_conv1d (of x, B and C), ssm_a, ssm_d, ssm_dt, ssm_norm, ssm_out.
//
// Kimi Delta Attention (Kimi team 2025). Keys: ssm.conv_kernel, kda.head_dim; as many heads as
// attention. Tensors: attn_q, attn_k, attn_v, ssm_conv1d_q, ssm_conv1d_k, ssm_conv1d_v, ssm_f_a and
// ssm_f_b (decays), ssm_beta (strengths), ssm_a, ssm_dt, ssm_g_a and ssm_g_b (gates), ssm_norm,
// attn_output. Ling 3 has whole matrices ssm_f_a and ssm_g_a, and bounds decays
// (kda.gate_lower_bound).
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
    // kShortConv: a "head" is a block of value_dim columns that a cut over ranks never divides.
    enum class Kind { kDeltaNet, kKimiDelta, kMamba2, kShortConv };
    int64_t heads = 0;      // value heads, each with a state; 0: the model has no such layers
    int64_t key_heads = 0;  // query and key heads, which value heads share
    int64_t key_dim = 0, value_dim = 0;
    int64_t taps = 0;  // of the convolution
    // Value head h has key head h % key_heads; else h / group().
    bool cycles = false;
    bool whole_groups = false;  // a cut never divides the value heads of a key head
    Kind kind = Kind::kDeltaNet;
    float floor = 0;  // of decays (program::DeltaRule)
    const char* OutputTensor() const;  // of such a layer, without "blk.N." and ".weight"
    int64_t group() const { return heads / key_heads; }
};

// heads == 0 where the model has none. hidden: columns of the residual stream. Errors: kCorrupt,
// kUnsupported, naming the key.
Result<Recurrent> ReadRecurrent(const model_files::ModelSource& source,
                                const std::string& architecture, int64_t hidden);

// Layer has recurrent state; else attention.
bool IsRecurrent(const model_files::ModelSource& source, int64_t layer);

}  // namespace weft::model
