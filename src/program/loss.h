// The loss as ordinary ops: what linear_cross_entropy and its gradient stand for.
//
// Rows with a target go in pieces (OutputPiece), so that no more logits are held than a piece's:
//
//     logits = soft_cap(scale * x . weight^T)              mat_mul, scale, soft_cap
//     stats, of all ranks                                  softmax_stats, all_gather
//     losses                                               cross_entropy
//     d logits, dx, dweight +=                             cross_entropy_grad and the gradients
//     above
//
// The gradient makes the losses on its way. So a training pass leaves out the ops that only compute
// losses; they stand between the forward ops and the backward ops, and behind them those that
// compute the logits of the first row with a target:
//
//     forward | evaluate | predict | backward
#pragma once

#include <cstdint>

#include "program/differentiate.h"

namespace weft::program {

struct LossOptions {
    int64_t rows = 0;                 // the most that have a target
    int64_t logits_bytes = 64 << 20;  // of a piece, about
};

// Values are [R], but for predicted: [1, vocabulary]. kNoValue: another stage has the loss.
struct LossValues {
    ValueId losses = kNoValue;     // by the backward ops
    ValueId evaluated = kNoValue;  // the same by the evaluate ops
    ValueId predicted = kNoValue;
};

struct ExpandedLoss {
    Differentiated differentiated;
    size_t evaluate_begin = 0, predict_begin = 0;  // ops
    LossValues values;
};

// Where there is no linear_cross_entropy, evaluate and predict are empty. The result passes
// CheckShapes.
ExpandedLoss ExpandLoss(Differentiated differentiated, const LossOptions& options);

}  // namespace weft::program
