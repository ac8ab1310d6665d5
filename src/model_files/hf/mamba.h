// Mamba-2 layers of a Hugging Face folder, as GGUF files have them (model/recurrent.h names the
// tensors): A = -exp(A_log); A and D, one number for each head, are columns; the norm's weights are
// a row for each group.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model_files/hf/assembly.h"

namespace weft::model_files::hf {

struct MambaShape {
    int64_t heads, head_dim, groups, state, taps;
    int64_t inner() const { return heads * head_dim; }
    int64_t shared() const { return groups * state; }  // columns of B, and of C
};

// The keys "ssm.*".
void WriteMamba(const MambaShape& s, MetaWriter& meta);

// prefix: "model.layers.3.mamba.". in: what the rows of ssm_in for z, x, B, C and steps are
// multiplied with, or nothing; out: what ssm_out is. Errors: kCorrupt, naming the tensor.
Status AddMamba(Assembly& assembly, int64_t layer, const std::string& prefix, const MambaShape& s,
                const std::vector<float>& in = {}, float out = 1);

// Refuses limits of the recurrence's steps (time_step_limit). transformers clamps the steps of
// Nemotron's prompts below by time_step_min, which neither the published models nor llama.cpp do.
Status CheckSteps(const Config& config);

// kCorrupt where the key has another value; absent is as good as `expected`.
Status MambaMustBe(const Config& config, std::string_view key, std::string_view expected);

}  // namespace weft::model_files::hf
