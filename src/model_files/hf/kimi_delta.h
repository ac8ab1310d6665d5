// Kimi Delta Attention of Hugging Face folders, beside layers of latent attention.
#pragma once

#include "model_files/hf/latent.h"

namespace weft::model_files::hf {

// Renames keys in `over` to those of DeepSeek's configs.
Status TakeRenamed(const Config& config, Json& over);
// Writes all keys except those of experts.
Status KdaMeta(const Config& config, MetaWriter& meta);
// Converts tensors of a layer with state that rules cannot describe: convolutions in F32, and
// decays. `module`: its attention module, with a trailing dot. sign: of ssm_a relative to A_log.
Status KdaLayer(Assembly& assembly, int64_t layer, const std::string& module, float sign);

// Latent attention in some layers.
inline constexpr Rule kSomeLatentRules[] = {
    {"attn_q", "self_attn.q_proj", Form::kLinear, false},
    {"attn_q_a", "self_attn.q_a_proj", Form::kLinear, false},
    {"attn_q_a_norm", "self_attn.q_a_layernorm", Form::kNorm, false},
    {"attn_q_b", "self_attn.q_b_proj", Form::kLinear, false},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", Form::kLinear, false},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm", Form::kNorm, false},
    {"attn_output", "self_attn.o_proj", Form::kLinear},
};
inline constexpr Rule kKdaRules[] = {
    {"attn_k", "self_attn.k_proj", Form::kLinear, false},
    {"attn_v", "self_attn.v_proj", Form::kLinear, false},
    {"ssm_f_a", "self_attn.f_a_proj", Form::kLinear, false},
    {"ssm_f_b", "self_attn.f_b_proj", Form::kLinear, false},
    {"ssm_beta", "self_attn.b_proj", Form::kLinear, false},
    {"ssm_g_a", "self_attn.g_a_proj", Form::kLinear, false},
    {"ssm_g_b", "self_attn.g_b_proj", Form::kLinear, false},
    {"ssm_norm.weight", "self_attn.o_norm.weight", Form::kVector, false},
};

}  // namespace weft::model_files::hf
