// Gemma 3n (Google 2025): AltUp (Baykal et al. 2023), a residual stream of several copies of which
// a layer computes the first, LAuReL (Menghani et al. 2024), and MLPs with few active columns. This
// file reads the hyper-parameters from a model's metadata.
//
// Keys: altup.num_inputs, altup.active_idx (0), laurel_rank (64 without the key),
// activation_sparsity_scale: by layer, the standard deviations above the mean that a gate must
// exceed; without the key, 1.6448534 in the first ten layers.
// Tensors: altup_proj, altup_unembd_proj (a matrix for each copy but the first);
// blk.N.altup_{router, router_norm, predict_coef, correct_coef, correct_scale}, laurel_l, laurel_r,
// laurel_post_norm.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model {

struct AltUp {
    int64_t streams = 0;            // copies of the residual stream; 0: the model is not Gemma 3n
    int64_t laurel_rank = 0;        // columns between the two matrices of LAuReL
    std::vector<float> deviations;  // by layer; not finite: the layer's gates are not cut
};

// In the result, streams == 0 means that the model is not Gemma 3n. Errors: kCorrupt, kNotFound,
// kUnsupported (the message names the key).
Result<AltUp> ReadAltUp(const model_files::ModelSource& source, const std::string& architecture,
                        int64_t layers);

}  // namespace weft::model
