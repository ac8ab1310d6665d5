// Mixtures of experts: their hyper-parameters in a model's metadata.
//
// Key and tensor names are those of the GGUF specification: expert_count, expert_used_count,
// expert_feed_forward_length, ...; blk.N.ffn_gate_inp (the router), ffn_{gate,up,down}_exps (all
// experts in one tensor, one after another), exp_probs_b (a bias for the choice of experts only),
// ffn_{gate,up,down}_shexp (the shared expert) and, in some models, ffn_gate_inp_shexp (a gate on
// its output). In models with moe_latent_size, ffn_latent_down projects the rows that routed
// experts read, and ffn_latent_up projects their results back; the shared expert reads rows of full
// width. expert_zero_count experts without matrices follow the others in the router
// (LongCat-Flash).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model_files/model_file.h"
#include "program/program.h"

namespace weft::model {

struct Moe {
    int64_t experts = 0;     // 0: a dense model
    int64_t used = 0;        // experts per token
    int64_t identities = 0;  // experts after these, without matrices, whose result is their input
    int64_t ffn = 0;         // columns of an expert
    int64_t shared_ffn = 0;  // columns of the shared expert; 0: none
    int64_t latent = 0;      // columns of the rows that experts read and write; 0: Hyper::hidden
    bool weighs_input = false;  // the expert weight multiplies an expert's input instead of its
                                // output
    program::Route route;
};

// Reads and checks the keys. In the result, experts == 0 means a dense model. ffn: the model's
// feed_forward_length. Errors: kCorrupt, kUnsupported (the message names the key).
Result<Moe> ReadMoe(const model_files::ModelSource& source, const std::string& architecture,
                    int64_t ffn);

// Whether the layer has experts. Otherwise it has a dense MLP, as the first layers of some MoE
// models.
bool HasExperts(const model_files::ModelSource& source, int64_t layer);

}  // namespace weft::model
