// Arguments of the element-wise and row-wise kernels, forward and backward. Training and inference
// use these kernels; in inference, all matrices are float32. The kernels are called through the
// table in kernels/kernels.h, with (args, part, parts): the call computes part number `part` of
// `parts` parts. "Any types" means that each matrix may have a different element type. Unless
// stated otherwise, rows, groups or elements are divided among the parts; an output may be the same
// memory as an input of the same type; and a row's result depends neither on other rows nor on the
// number of parts.
#pragma once

#include "kernels/args.h"
#include "kernels/dense/element.h"
#include "tensor/activation.h"
#include "tensor/loss_terms.h"
#include "tensor/temperature.h"

namespace weft::kernels::dense {

// y = x * s * weight, with s = 1 / sqrt(mean(x^2) + eps) over groups of `group` columns (group ==
// cols: whole rows; group == head_dim: QK norm). A null weight means ones. Any types. Zhang and
// Sennrich 2019.
// squares   not null: x has only some columns of rows with `whole` columns (group == cols), and the
//           mean is squares[row * squares_stride] / whole
// centered  LayerNorm (Ba et al. 2016): subtracts the mean of the group from x
struct RmsNormArgs {
    ConstMatrix x;
    const float* weight = nullptr;  // [group]
    float eps = 0;
    int64_t rows = 0, cols = 0, group = 0;
    Matrix y;
    const float* squares = nullptr;
    int64_t squares_stride = 0, whole = 0;
    bool centered = false;
};

// Gradients of RmsNormArgs' y, any types:
//   dx = s * (dy * w - x * s^2 * mean(dy * w * x))
//   dw [group] += sum over rows and groups, in order, of dy * x * s     parts divide dw
// inverse: the values s, [rows, cols / group], or null. norm_grad_input writes them.
// norm_grad_weight reads them instead of computing s in every part, so it must run after all parts
// of norm_grad_input.
struct RmsNormGradArgs {
    ConstMatrix dy, x;
    const float* weight = nullptr;  // null: ones; not read by norm_grad_weight
    float eps = 0;
    int64_t rows = 0, cols = 0, group = 0;
    Matrix dx;            // norm_grad_input
    float* dw = nullptr;  // norm_grad_weight
    float* inverse = nullptr;
};

// out = act(gate) * up. All matrices have the same type. Shazeer 2020; tensor/activation.h has the
// formulas.
// limit  not 0 (SiLU only): limits up to [-limit, limit], and act(gate) to at most `limit`. With
//        limits_gate, limits gate instead of act(gate)
struct GluArgs {
    ConstMatrix gate, up;
    int64_t rows = 0, cols = 0;
    Matrix out;
    Activation activation = Activation::kSilu;
    float limit = 0;
    bool limits_gate = false;
};

// The gradient of out = silu(gate) * up, with sig = 1 / (1 + exp(-gate)):
//   dup = dout * gate * sig, dgate = dout * up * sig * (1 + gate * (1 - sig));
// for GELU, sig = 1 / (1 + exp(-2 u)), and 2 u' gate replaces gate in dgate. All matrices have the
// same type.
struct GluGradArgs {
    ConstMatrix dout, gate, up;
    int64_t rows = 0, cols = 0;
    Matrix dgate, dup;
    Activation activation = Activation::kSilu;  // or kGeluTanh; others have no gradient
};

// RoPE (RoFormer, Su et al. 2021): rotates pairs of dims in each head by the angles of the row's
// table. The first `rotary_dim` dims of each head are rotated; if `last` is set, the last
// `rotary_dim` dims. With `neighbours`, the dims 2i and 2i + 1 form a pair, as in Llama's GGUF
// files; otherwise i and i + rotary_dim / 2, as in Qwen. sign = -1 rotates back (the gradient). x
// and y have the same type.
struct RopeArgs {
    ConstMatrix x;                   // [rows, heads * head_dim]
    const float* cos_sin = nullptr;  // [rows, rotary_dim], from RopeTableArgs
    float sign = 1;
    bool neighbours = false;
    int64_t rows = 0, heads = 0, head_dim = 0, rotary_dim = 0;
    Matrix y;
    bool last = false;
};

// y = a + b, any types. y may be the same memory as a or b if it has the same type.
struct AddArgs {
    ConstMatrix a, b;
    int64_t rows = 0, cols = 0;
    Matrix y;
};

// y = x + bias for each row, any types.
struct AddBiasArgs {
    ConstMatrix x;
    const float* bias = nullptr;  // [cols]
    int64_t rows = 0, cols = 0;
    Matrix y;
};

// db [cols] += the sums of dy's columns, added in the order of rows. The columns are divided among
// the parts.
struct BiasGradArgs {
    ConstMatrix dy;
    int64_t rows = 0, cols = 0;
    float* db = nullptr;
};

// y = factor * x, any types; a factor of 1 copies or converts. If `positions` is not null, row i is
// also multiplied by temperature.At(positions[i]).
struct ScaleArgs {
    ConstMatrix x;
    int64_t rows = 0, cols = 0;
    float factor = 1;
    Matrix y;
    const int32_t* positions = nullptr;  // [rows] or null
    Temperature temperature{};
    float FactorOf(int64_t row) const {
        return positions == nullptr ? factor : factor * temperature.At(positions[row]);
    }
};

// The loss of each row (tensor/loss_terms.h). The vocabulary may be divided over ranks: a rank has
// the logits of tokens [first, first + cols). A row with a negative target has the loss 0 and a
// gradient of zeros.

// `stats` has for each row: the largest logit, the sum of exp(logit - largest), the target's logit
// (0 if another rank has it), and with `sums` the sum of the logits.
struct SoftmaxStatsArgs {
    const float* logits = nullptr;     // [rows, cols]
    const int32_t* targets = nullptr;  // [rows]
    int64_t rows = 0, cols = 0, first = 0;
    float* stats = nullptr;  // [rows, LossTerms::stats()]
    bool sums = false;
    int64_t each() const { return sums ? 4 : 3; }
};
// stats: each row has the statistics of all ranks, one rank after another.
struct CrossEntropyArgs {
    const float* stats = nullptr;      // [rows, ranks * terms.stats()]
    const int32_t* targets = nullptr;  // [rows]
    int64_t rows = 0, ranks = 1;
    float* losses = nullptr;  // [rows]
    float* hits = nullptr;    // [rows]: 1 where no logit is larger than the target's, else 0
    LossTerms terms{};
};
// Each row of logits becomes dloss * (softmax(logits) (1 + 2 z_loss lse) - (1 - smoothing)
// onehot(target) - share).
struct CrossEntropyGradArgs {
    float* logits = nullptr;           // [rows, cols]
    const float* stats = nullptr;      // [rows, ranks * terms.stats()]
    const int32_t* targets = nullptr;  // [rows]
    const float* dloss = nullptr;      // [rows]
    int64_t rows = 0, cols = 0, first = 0, ranks = 1;
    LossTerms terms{};
};

// dx = dy * (1 - tanh(x / cap)^2).
struct SoftCapGradArgs {
    const float* dy = nullptr;  // [rows, cols]
    const float* x = nullptr;   // [rows, cols]
    float* dx = nullptr;        // may be dy or x
    int64_t rows = 0, cols = 0;
    float cap = 1;
};

// One step of Adam (Kingma and Ba 2015) over `count` parameters, with
// g' = grad_scale * g + l2 * p:
//   m = beta1 * m + (1 - beta1) * g'
//   v = beta2 * v + (1 - beta2) * g'^2
//   p = p - rate * decay * p - rate * (m / correction1) / (sqrt(v / correction2) + eps)
// With `decay` instead of `l2`, this is AdamW (Loshchilov and Hutter 2019). The parameters are
// divided among the parts.
struct AdamArgs {
    float* p = nullptr;
    float* m = nullptr;
    float* v = nullptr;
    const void* g = nullptr;
    Element g_type = Element::kF32;
    int64_t count = 0;
    float rate = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, decay = 0, l2 = 0;
    float correction1 = 1, correction2 = 1;  // 1 - beta^t
    float grad_scale = 1;
    void* copy = nullptr;  // copy of p in another type, or null; the types of gradient and copy
                           // must not be bfloat16 and float16
    Element copy_type = Element::kBf16;
};

// One step of gradient descent (momentum: Polyak 1964; nesterov: Sutskever et al. 2013) over
// `count` parameters, with g' = grad_scale * g + l2 * p:
//   b = momentum * b + taken * g'                          if b is null, g' is used in its place
//   p = p - rate * (nesterov: g' + momentum * b; else b)
// The parameters are divided among the parts.
struct SgdArgs {
    float* p = nullptr;
    float* b = nullptr;  // momentum, or null
    const void* g = nullptr;
    Element g_type = Element::kF32;
    int64_t count = 0;
    float rate = 0, momentum = 0, taken = 1, l2 = 0;
    bool nesterov = false;
    float grad_scale = 1;
    void* copy = nullptr;  // as in AdamArgs
    Element copy_type = Element::kBf16;
};

// The combined statistics of a row over all ranks. logits: their sum, with smoothing.
struct SoftmaxTotal {
    float largest = 0, sum = 0, chosen = 0, logits = 0;
};
SoftmaxTotal TotalOf(const float* stats, int64_t ranks, const LossTerms& terms);
// The factors of a row's gradient: d logits = exp(logit - largest) * factor - share, and for the
// target further -chosen.
struct SoftmaxSlope {
    float factor = 0, share = 0, chosen = 0;
};
SoftmaxSlope SlopeOf(const SoftmaxTotal& total, float dloss, const LossTerms& terms);
// The kernel tables of all instruction sets use this function.
void CrossEntropy(const CrossEntropyArgs& args, int part, int parts);

struct RowKernels {
    Kernel<RmsNormArgs> rms_norm = nullptr;
    Kernel<RmsNormGradArgs> norm_grad_input = nullptr;
    Kernel<RmsNormGradArgs> norm_grad_weight = nullptr;
    Kernel<GluArgs> glu = nullptr;
    Kernel<GluGradArgs> glu_grad = nullptr;
    Kernel<RopeArgs> rope = nullptr;
    Kernel<AddArgs> add = nullptr;
    Kernel<AddBiasArgs> add_bias = nullptr;
    Kernel<BiasGradArgs> bias_grad = nullptr;
    Kernel<ScaleArgs> scale = nullptr;
    Kernel<SoftmaxStatsArgs> softmax_stats = nullptr;
    Kernel<CrossEntropyGradArgs> cross_entropy_grad = nullptr;
    Kernel<SoftCapGradArgs> soft_cap_grad = nullptr;
    Kernel<AdamArgs> adam = nullptr;
    Kernel<SgdArgs> sgd = nullptr;
};

}  // namespace weft::kernels::dense
