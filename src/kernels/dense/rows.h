// The element-wise and row-wise kernels that only training has: gradients of RMS norm and of gated
// units, softmax cross-entropy with its gradient, AdamW. (RMS norm itself, SwiGLU and RoPE stand in
// kernels/kernels.h.) The functions stand in the table of dense/dense.h: (args, part, parts).
#pragma once

#include "kernels/reference/backward.h"

namespace weft::kernels::dense {

// RmsNormGradInput and RmsNormGradWeight of reference/backward.h; dw is a sum over rows in order.
//   inverse  [rows, cols / group] or null: 1 / sqrt(mean(x^2) + eps), which the gradient of the
//            input writes; that of the weight reads it in place of computing it in every part, and
//            so must come after all parts of the other.
struct NormGradArgs {
    reference::RmsNormGradArgs args;
    float* inverse = nullptr;
};

// Softmax cross-entropy and its gradient over a chunk of rows of logits, in place:
//   losses[row] = logsumexp(logits) - logits[target]
//   logits becomes dloss * (softmax(logits) - onehot(target))
// A negative target gives a loss of 0 and zeros. Parts share out rows.
struct LossArgs {
    float* logits = nullptr;  // [rows, cols]
    int64_t logits_stride = 0;
    const int32_t* targets = nullptr;  // [rows], below cols
    int64_t rows = 0, cols = 0;
    float dloss = 1;
    float* losses = nullptr;  // [rows]
};

// One step of AdamW (Loshchilov and Hutter 2019) over `count` parameters, with
// g' = grad_scale * g:
//   m = beta1 * m + (1 - beta1) * g'
//   v = beta2 * v + (1 - beta2) * g'^2
//   p = p - rate * decay * p - rate * (m / correction1) / (sqrt(v / correction2) + eps)
// Parts share out parameters.
struct AdamWArgs {
    float* p = nullptr;
    float* m = nullptr;
    float* v = nullptr;
    const float* g = nullptr;
    int64_t count = 0;
    float rate = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, decay = 0;
    float correction1 = 1, correction2 = 1;  // 1 - beta^t
    float grad_scale = 1;
    uint16_t* p_bf16 = nullptr;  // or null: a copy of p as bfloat16, rounded to nearest even
};

}  // namespace weft::kernels::dense
