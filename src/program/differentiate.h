// The differentiate walk: a Program that runs forward, then backward.
//
// Differentiate(forward) gives a Program whose first ops and values are those of `forward`, with
// the same numbers (attention writes its lse, too), and whose later ops compute gradients: given
// dL/d(output) as an input, each weight's gradient is added to its kGradient value (which the
// caller zeroes when it wants to).
// L is any function of `output`: the caller binds output_gradient, or lets `output` be the loss
// of LinearCrossEntropy and binds 1 / tokens.
//
// The rule of each op is reverse-mode differentiation (Griewank and Walther 2008):
//   mat_mul         dx = dy . W, dW += dy^T . x, db += column sums of dy
//   rms_norm, glu, embedding, attention, select_rows, soft_cap, linear_cross_entropy: their *_grad
//                   op
//   rope            rope with the other sign (a rotation's transpose is its inverse)
//   add             dy to both operands; add_bias: column sums of dy to the bias, too
//   scale           scale
//   route, expert_mat_mul, expert_sum, gate_rows, router_load, load_balance: their *_grad ops; what
//                   was chosen, and how many rows chose it, has no gradient
//   a value that is read several times: the sum of its readers' gradients
// Attention's caches are left out: a training step holds whole sequences, from position 0.
//
// Several ranks. Each rank differentiates its own Program; all ranks must ask for the same weights
// so that their collectives match. A value is, over the tensor group,
//   whole    the same on all ranks: the residual stream, inputs, norm weights. Its gradient is the
//            same on all ranks, too.
//   cut      each rank has its own part: what a MatMul of Cut::kRows writes. So is its gradient.
//   partial  the sum over ranks is what is meant: what Cut::kColumns writes.
// and each collective has its transpose:
//   all_reduce      partial -> whole. dx = dy: the gradient of a sum, on each rank.
//   (no op)         whole -> cut: a whole value read by rank-local work (Cut::kRows). Each rank
//                   has only its own readers' part of the gradient; those parts are summed here
//                   first, then by ONE all_reduce over the group (Shoeybi et al. 2019, "f" and
//                   "g").
//   all_gather      cut -> whole. dx = this rank's columns of dy.
//   reduce_scatter_rows  partial -> own rows. dx = gather_rows of dy.
//   gather_rows     own rows -> whole. dx = own rows of dy, which reduce_scatter_rows gives where
//                   dy is a sum over the group.
//   send, recv      each other, with the same peer: the gradient goes back the way x came.
// Experts are cut weights, by columns of each, by whole experts, or both: the gradient of what they
// read is summed over the group as any (no op) above, and so is that of the rows' weights, of which
// each rank has the terms of its own experts and columns; routers then get the same gradient on all
// ranks.
// Weights: a cut weight's gradient is local. A whole weight that rank-local work reads (QK norm
// over this rank's heads, any norm of own rows) has a partial gradient: it is computed into zeros,
// all-reduced, and then added, so that the kGradient stays complete over many steps. Where ranks
// hold the same rows of a weight (MatMul::shared_rows: KV heads that are replicated; of a bias, the
// same), dy of those rows is summed over the ranks for dW and db only; dx still takes the rank's
// own dy.
//
// Refused (kUnsupported, naming op and value): ops that only Differentiate writes, attention with
// sinks, clamped SiLU, norms over rows that are cut over ranks, latent attention, experts' biases
// and factors, collectives of the pipeline group, a cut or partial value where only a whole one
// makes sense, and an all_reduce whose operand is no partial sum.
//
// Not known here: one tensor held as two values (tied embeddings on two pipeline stages) has two
// gradients; the caller adds them.
#pragma once

#include <vector>

#include "base/result.h"
#include "program/program.h"

namespace weft::program {

struct DifferentiateOptions {
    ValueId output = kNoValue;  // where the gradient starts; kNoValue: only at this stage's Sends
    std::vector<ValueId>
        weights;                // which gradients are wanted; empty: of all weights of float type
    bool into_received = true;  // send gradients back to the stages that values came from
    // A second output with a gradient of its own (a loss of another weight), or none.
    ValueId side_output = kNoValue;
};

struct WeightGradient {
    ValueId weight = kNoValue;
    ValueId gradient = kNoValue;  // kGradient, float32, of the weight's shape
};

struct Differentiated {
    Program program;
    ValueId output_gradient = kNoValue;     // kInput of the output's shape; kNoValue without output
    ValueId side_gradient = kNoValue;       // the same of the second output
    std::vector<WeightGradient> gradients;  // of the wanted weights that the output depends on
    size_t backward_begin = 0;              // the first backward op
};

// Errors: what CheckShapes refuses, kUnsupported as above, kUsage for an output or weight that is
// none. The result passes CheckShapes.
Result<Differentiated> Differentiate(const Program& forward, const DifferentiateOptions& options);

}  // namespace weft::program
