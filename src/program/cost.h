// The cost walk: FLOPs, bytes read, bytes written and bytes sent by each op of a rank's Program in
// one step. The counts are exact, by formula. Other code divides them by a machine's rates.
//
// One step: `tokens` rows T of ONE sequence that already has `context` positions in the KV cache,
// and `outputs` rows R. Row i then attends to context + i + 1 positions, and all rows together to
//     pairs = T * context + T * (T + 1) / 2
// Without a cache (training) context counts as 0. For several sequences, add up the costs of their
// steps, but count the weights once.
//
// FLOPs: a multiply, an add, a division, a root and an exp each count as one; a comparison counts
// as none.
//     mat_mul [T, k] x [n, k]^T         2 T n k  (+ T n with a bias); the same for each of its two
//                                       gradients, T n for bias_grad
//     attention, h heads of d           (4 d + 4) h pairs: scores, weighted values, softmax
//       with a soft cap                 (4 d + 16) h pairs; a window limits the positions per row,
//                                       and the part of the cache that is read
//     attention_grad                    (10 d + 8) h pairs: scores again, dp, dv, dq, dk, softmax
//       with a soft cap                 (10 d + 23) h pairs
//     rms_norm                          4 per element; its gradients 8 and 6
//     rope                              3 per rotated element
//     sum_squares                       2 per element that it adds
//     glu                               5 per element (GELU 9); its gradient 11
//     soft_cap                          12 per element
//     add, add_bias, scale, embedding_grad, select_rows_grad                 1 per element
//     softmax_cross_entropy and its gradient                                 3 per logit
// Bytes read: each operand once, weights in their own dtype, activations in float32. A lookup reads
// only the table rows that tokens name. Attention reads K and V of all T + context positions.
// Gradients of weights are read and written. Bytes written: each output, and K and V of T
// positions. Communication ops read and write each operand once, but compute nothing.
//
// Wire bytes are algorithm bytes: the size of the collective's vector on each rank, for any
// algorithm and number of ranks:
//     all_reduce, reduce_scatter_rows   their operand
//     all_gather, gather_rows           their output
//     send, recv                        the message
// One-shot all-reduce over n ranks sends (n - 1) times these bytes. Two-shot and ring send 2 (n -
// 1) / n times these bytes for all_reduce and (n - 1) / n for all_gather (the "bus bytes" of other
// tools).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/program.h"

namespace weft::program {

struct OpCost {
    double flops = 0;  // whole, exact below 2^53; a large model's step has over 2^63
    int64_t read_bytes = 0;
    int64_t written_bytes = 0;
    int64_t wire_bytes = 0;
    bool operator==(const OpCost&) const = default;
};

// Costs by op index. The Program must pass CheckShapes.
std::vector<OpCost> Cost(const Program& program, int64_t tokens, int64_t outputs, int64_t context);

// A step of several sequences, each with `tokens` rows and `context` positions in the KV cache. All
// sequences together have `outputs` output rows.
struct StepShape {
    int64_t sequences = 1, tokens = 1, outputs = 1, context = 0;
    int64_t rows() const { return sequences * tokens; }
};

// The cost of such a step. Weights are read once; attention and its cache count for each sequence.
// A stack holds the weights of m of the layer's E experts. If rows choose k of the E experts at
// random, it costs:
//     matrices   the expected number of the m experts that at least one row chooses:
//                m (1 - (1 - k / E)^rows)
//     rows       m / E of all pairs of a row and a chosen expert
// With m < E (expert groups) both numbers are the expected numbers of the most loaded of the E / m
// groups: the mean plus z standard deviations, where z is the expected largest of E / m standard
// normal values.
std::vector<OpCost> Cost(const Program& program, const StepShape& step);

// How many of the `held` experts of a rank (of `all` experts) at least one of `rows` rows chooses,
// if each row chooses `chosen` experts at random. mean: the expected number. most: the expected
// number for the most loaded of the all / held groups.
struct ExpertLoad {
    double mean = 0, most = 0;
};
ExpertLoad DistinctExperts(double held, double all, double chosen, double rows);

OpCost Total(std::span<const OpCost> costs);

}  // namespace weft::program
