// The differentiate walk: a Program that runs forward, then backward.
//
// Differentiate(forward) returns a Program that begins with the ops and values of `forward`, with
// the same numbers (attention also writes the log-sum-exp of its scores, `lse`, for the backward
// pass). Later ops compute gradients: given dL/d(output) as an input, they add each weight's
// gradient to its kGradient value, which the caller zeroes when needed. L is any function of
// `output`: the caller binds output_gradient. If `output` is the losses of LinearCrossEntropy, the
// caller binds the weight of each row, such as 1 / tokens.
//
// The rule of each op is reverse-mode differentiation (Griewank and Walther 2008):
//   mat_mul         dx = dy . W, dW += dy^T . x, db += column sums of dy
//   rms_norm, glu, embedding, attention, select_rows, soft_cap, linear_cross_entropy, causal_conv,
//                   delta_rule, activate, weigh_rows: their *_grad op
//   head_mat_mul    dx: head_mat_mul with the other side of the matrices
//   pick_columns, pad_heads: each other
//   rope            rope with the other sign (a rotation's transpose is its inverse)
//   add             dy to both operands; add_bias: column sums of dy to the bias, too
//   scale           scale
//   route, expert_mat_mul, expert_sum, gate_rows, router_load, load_balance: their *_grad ops; the
//                   choice of experts and the counts of their rows have no gradient
//   a value that is read several times: the sum of its readers' gradients
// The gradient ignores attention's caches: a training step holds whole sequences, from position 0.
//
// Several ranks. Each rank differentiates its own Program. All ranks must request the same weights,
// so that their collectives match. Over the tensor group, a value is one of these:
//   whole    the same on all ranks: the residual stream, inputs, norm weights. Its gradient is also
//            the same on all ranks.
//   cut      each rank has its own part: a MatMul's output with Cut::kRows. So is its gradient.
//   partial  the value is the sum over ranks: the output of Cut::kColumns.
// Each collective has its transpose:
//   all_reduce      partial -> whole. dx = dy: the gradient of a sum, on each rank.
//   (no op)         whole -> cut: rank-local work (Cut::kRows) reads a whole value. Each rank has
//                   only its own readers' part of the gradient. The rank adds these parts first,
//                   then ONE all_reduce sums them over the group (Shoeybi et al. 2019, "f" and
//                   "g").
//   all_gather      cut -> whole. dx = this rank's columns of dy.
//   reduce_scatter_rows  partial -> this rank's rows. dx = gather_rows of dy.
//   gather_rows     this rank's rows -> whole. dx = this rank's rows of dy; reduce_scatter_rows
//                   computes them if dy is a sum over the group.
//   send, recv      each becomes the other, with the same peer: the gradient returns to the
//                   sender of x.
// Experts are cut weights: by columns of each, by whole experts, or both. The gradient of their
// input is summed over the group like every (no op) case above. The gradient of
// the router's weight for each row is summed over the group, too, because each rank computes only
// the terms of its own experts and columns. Routers therefore get the same gradient on all ranks.
// Weights: a cut weight's gradient is local. A whole weight that rank-local work reads (QK norm
// over this rank's heads, any norm of this rank's rows) has a partial gradient. It is computed into
// zeros, all-reduced and then added, so that the kGradient stays complete over many steps. If
// several ranks hold the same rows of a weight (MatMul::shared_rows: replicated KV heads; also of a
// bias), dy of those rows is summed over the ranks for dW and db only; dx still uses the rank's own
// dy.
//
// Differentiate rejects these with kUnsupported, naming op and value: ops that only Differentiate
// writes, attention to chosen positions or blocks, DeepSeek-V4's streams, windows and routers,
// collectives of the pipeline group, a cut or partial value in place of a whole one, and an
// all_reduce whose operand is not a partial sum. In training, latent attention is attention with
// one KV head (model/latent.cc), and the biases of experts are ops of their own (train/graph.cc).
//
// One tensor held as two values (tied embeddings on two pipeline stages) has two gradients, which
// the caller must add.
#pragma once

#include <vector>

#include "base/result.h"
#include "program/program.h"

namespace weft::program {

struct DifferentiateOptions {
    ValueId output = kNoValue;     // the gradient starts here; kNoValue: only at this stage's Sends
    std::vector<ValueId> weights;  // weights to differentiate; empty: all of float type
    // A second output with its own gradient (a loss of another weight), or none.
    ValueId side_output = kNoValue;
};

struct WeightGradient {
    ValueId weight = kNoValue;
    ValueId gradient = kNoValue;  // kGradient, float32, of the weight's shape
};

struct Differentiated {
    Program program;
    ValueId output_gradient = kNoValue;     // kInput of the output's shape; kNoValue without output
    ValueId side_gradient = kNoValue;       // as output_gradient, for side_output
    std::vector<WeightGradient> gradients;  // gradients of the requested weights on which the
                                            // output depends
    size_t backward_begin = 0;              // the first backward op
};

// Errors: those of CheckShapes, kUnsupported for the ops above, kUsage (options.output or one of
// options.weights is not such a value of `forward`). The result passes CheckShapes.
Result<Differentiated> Differentiate(const Program& forward, const DifferentiateOptions& options);

}  // namespace weft::program
