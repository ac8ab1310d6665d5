// The cost walk: what each op of a rank's Program computes, reads, writes and sends in one step.
// Exact counts by formula, no model of any machine: time is bytes over bandwidth, elsewhere.
//
// One step: `tokens` rows T of ONE sequence that already has `context` positions in the KV cache,
// and `outputs` rows R. A row i then attends to context + i + 1 positions; all rows together to
//     pairs = T * context + T * (T + 1) / 2
// and without a cache (training) context counts as 0. Of several sequences, sum the steps and
// count the weights once.
//
// FLOPs: a multiply, an add, a division, a root, an exp each count as one; a comparison as none.
//     mat_mul [T, k] x [n, k]^T         2 T n k  (+ T n with a bias); each of its two gradients the
//                                       same, bias_grad T n
//     attention, h heads of d           (4 d + 4) h pairs: scores, weighted values, softmax
//       with a soft cap                 (4 d + 16) h pairs; with a window a row attends to no more
//                                       positions than that, and no more of the cache is read
//     attention_grad                    (10 d + 8) h pairs: scores again, dp, dv, dq, dk, softmax
//       with a soft cap                 (10 d + 23) h pairs
//     rms_norm                          4 an element; its gradients 8 and 6
//     rope                              3 a rotated element
//     sum_squares                       2 an element that it adds
//     glu 5 an element (GELU 9), its gradient 11; soft_cap 12; add, add_bias, scale, embedding_grad
//     and select_rows_grad 1 softmax_cross_entropy and its gradient  3 a logit
// Bytes read: each operand once, weights in their own dtype, activations in float32; of a table
// only the rows that tokens name; of the KV cache all T + context positions of K and V. Gradients
// of weights are read and written. Bytes written: each output, and T positions of K and V.
// Communication ops read and write memory, too (their operands once), but compute nothing.
//
// Wire bytes are algorithm bytes: the size of the vector that the collective is about, on each
// rank, whatever the algorithm and the number of ranks:
//     all_reduce and reduce_scatter_rows their operand, all_gather and gather_rows their output,
//     send and recv the message.
// One-shot of n ranks sends (n - 1) times that; two-shot and ring send 2 (n - 1) / n times that
// for all_reduce and (n - 1) / n for all_gather (the "bus bytes" of other tools).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/program.h"

namespace weft::program {

struct OpCost {
    double flops = 0;  // (whole numbers, exact below 2^53: a large model's step has more than 2^63)
    int64_t read_bytes = 0;
    int64_t written_bytes = 0;
    int64_t wire_bytes = 0;
    bool operator==(const OpCost&) const = default;
};

// By op number. The Program must pass CheckShapes.
std::vector<OpCost> Cost(const Program& program, int64_t tokens, int64_t outputs, int64_t context);

// A step of several sequences, as engines make it: `sequences` times `tokens` rows, each sequence
// with `context` positions in the KV cache, and `outputs` output rows in all.
struct StepShape {
    int64_t sequences = 1, tokens = 1, outputs = 1, context = 0;
    int64_t rows() const { return sequences * tokens; }
};

// The same of such a step. Weights are read once; attention and its cache count for each sequence.
// Of stacks of experts, where rows choose k of E at random:
//     matrices   those of the held m that some row is expected to choose, m (1 - (1 - k / E)^rows)
//     rows       the share m / E of them meets an expert that is held
// With m < E (expert groups) these are what the unluckiest of the E / m groups is expected to have:
// the mean and as many standard deviations as the largest of so many normal values.
std::vector<OpCost> Cost(const Program& program, const StepShape& step);

// Of m of E experts held, when each of `rows` rows chooses k at random: the distinct ones expected
// to be chosen, on average and in the unluckiest of E / m groups.
struct ExpertLoad {
    double mean = 0, most = 0;
};
ExpertLoad DistinctExperts(double held, double all, double chosen, double rows);

OpCost Total(std::span<const OpCost> costs);

}  // namespace weft::program
