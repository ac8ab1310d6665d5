// Converts Mamba layers of a Hugging Face folder to the tensors of GGUF files (model/recurrent.h
// names them): A = -exp(A_log). In Mamba-2, A and D have one number per head, as columns, and the
// norm's weight has one row per group.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model_files/hf/assembly.h"
#include "model_files/hf/family.h"

namespace weft::model_files::hf {

struct MambaShape {
    int64_t heads, head_dim, groups, state, taps;
    int64_t inner() const { return heads * head_dim; }
    int64_t shared() const { return groups * state; }  // columns of B, and also of C
};

// Writes the keys "ssm.*".
void WriteMamba(const MambaShape& s, MetaWriter& meta);

// Falcon-H1's factors.
struct MambaScales {
    float input = 1;        // on the layer's input, as a factor on ssm_in without its bias
    std::vector<float> in;  // on the rows of ssm_in for z, x, B, C and steps, or empty
    float out = 1;          // on ssm_out
};

// prefix: "model.layers.3.mamba.". Errors: kCorrupt, naming the tensor.
Status AddMamba(Assembly& assembly, int64_t layer, const std::string& prefix, const MambaShape& s,
                const MambaScales& scales = {});

// The sizes of the tensors that all recurrences have: the rates A [heads, each], D [heads], and the
// taps and the bias of the convolution.
struct StateShape {
    int64_t heads, each, channels, taps;
};
// Errors: kCorrupt, naming the tensor.
Status AddState(Assembly& assembly, int64_t layer, const std::string& prefix, const StateShape& s);

// Mamba's first version, in which each channel has a state of its own: the keys and the recurrence.
Status WriteMambaSizes(const Config& config, MetaWriter& meta);
Status AddChannels(Assembly& assembly, int64_t layer, const std::string& prefix);

// Norms of layers whose MLP is called feed_forward.
inline constexpr Rule kPreFfNormRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "pre_ff_layernorm", Form::kNorm},
};

// Refuses limits on the recurrence's steps (time_step_limit). In Nemotron's prompts, transformers
// clamps steps to at least time_step_min. The published models, llama.cpp and Weft do not clamp
// steps.
Status CheckSteps(const Config& config);

}  // namespace weft::model_files::hf
