// Expands linear_cross_entropy and its gradient into ordinary ops.
//
// Rows with a target are processed in pieces (OutputPiece), so that only the logits of one piece
// are held:
//
//     logits = soft_cap(scale * x . weight^T)              mat_mul, scale, soft_cap
//     stats of all ranks                                   softmax_stats, all_gather
//     losses                                               cross_entropy
//     d logits, dx, dweight +=                             cross_entropy_grad and the gradients
//     above
//
// The backward ops also compute the losses. So a training step skips the evaluate ops, which only
// compute losses. It also skips the predict ops, which compute the logits of the first rows with a
// target:
//
//     forward | evaluate | predict | backward
#pragma once

#include <cstdint>

#include "program/differentiate.h"

namespace weft::program {

struct LossOptions {
    int64_t rows = 0;                 // maximum rows with a target
    int64_t logits_bytes = 64 << 20;  // approximate size of a piece
    int64_t predicted_rows = 1;       // rows with logits after the predict ops
    bool evaluates = true;            // false: no evaluate ops
};

// Values are [R], except predicted: [predicted_rows, vocabulary]. kNoValue: another stage has the
// loss.
struct LossValues {
    ValueId losses = kNoValue;     // written by the backward ops
    ValueId evaluated = kNoValue;  // written by the evaluate ops, without LossTerms
    // 1 for each target without a larger logit, else 0, written with the losses.
    ValueId hits = kNoValue, evaluated_hits = kNoValue;
    ValueId predicted = kNoValue;
};

struct ExpandedLoss {
    Differentiated differentiated;
    size_t evaluate_begin = 0, predict_begin = 0;  // indexes of ops
    LossValues values;
};

// Rows of each piece of the loss of these rows by an output matrix.
int64_t LossPieceRows(const Value& weight, const LossOptions& options);

// Without a linear_cross_entropy, evaluate and predict are empty. The result passes CheckShapes.
ExpandedLoss ExpandLoss(Differentiated differentiated, const LossOptions& options);

}  // namespace weft::program
