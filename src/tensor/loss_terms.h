// Terms of the loss of a token besides -log softmax(logits)[target]. With lse = log(sum of
// exp(logits)):
//
//     (1 - smoothing) (lse - logits[target]) + smoothing (lse - mean(logits)) + z_loss lse^2
//
// smoothing: label smoothing (Szegedy et al. 2016), as torch's cross_entropy(label_smoothing).
// z_loss: coefficient of the squared logarithm of the sum (Chowdhery et al. 2022).
#pragma once

#include <cstdint>

namespace weft {

struct LossTerms {
    float smoothing = 0, z_loss = 0;
    int64_t tokens = 1;  // of the whole vocabulary
    // Part of the smoothed target that each token has.
    float share() const { return smoothing / static_cast<float>(tokens); }
    // Statistics of a row of logits: the largest, the sum of exp(logit - largest), the target's
    // logit, and with smoothing the sum of the logits.
    int64_t stats() const { return smoothing > 0 ? 4 : 3; }
};

}  // namespace weft
