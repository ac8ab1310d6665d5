// Mixtures of experts: what a model's metadata says of them, and the MLP that they make.
//
// Key names and tensor names are those of the GGUF specification: expert_count, expert_used_count,
// expert_feed_forward_length, ...; blk.N.ffn_gate_inp (the router), ffn_{gate,up,down}_exps (all
// experts in one tensor, one below the other), exp_probs_b (the bias that chooses), and
// ffn_{gate,up,down}_shexp (the shared expert), with ffn_gate_inp_shexp, where there is one, as the
// gate of its output. ffn_latent_down and ffn_latent_up are before and behind the experts, but not
// the shared one, of a model with moe_latent_size.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model_files/model_file.h"
#include "program/program.h"

namespace weft::model {

struct Moe {
    int64_t experts = 0;     // 0: a dense model
    int64_t used = 0;        // experts of a token
    int64_t ffn = 0;         // columns of an expert
    int64_t shared_ffn = 0;  // columns of the shared expert; 0: none
    int64_t latent = 0;      // experts read and write rows of so many columns; 0: as the model
    bool weighs_input = false;  // experts take their input, not their result, times their weight
    program::Route route;
};

// Reads and checks it; experts == 0 where the model has none. `ffn`: the model's
// feed_forward_length. Errors: kCorrupt, kUnsupported, naming the key.
Result<Moe> ReadMoe(const model_files::ModelSource& source, const std::string& architecture,
                    int64_t ffn);

// Layer has experts; else a dense MLP (as the first layers of some models of experts).
bool HasExperts(const model_files::ModelSource& source, int64_t layer);

}  // namespace weft::model
