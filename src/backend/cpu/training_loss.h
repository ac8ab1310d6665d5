// The output matrix and the cross-entropy in one, in chunks of rows, so that no more logits are
// ever held than a chunk's: part of training.cc. With the vocabulary cut over the tensor group,
// each rank has the logits of its own rows, and two numbers a row go over the wire.
#pragma once

#include "backend/cpu/training_ops.h"

namespace weft::backend {

// Whether the op is made by ComputeLoss.
bool IsLossOp(program::OpKind kind);
// How many of the rows of an output matrix of a block type are widened at a time, of `row_bytes`
// once they are.
int64_t WidenedRows(int64_t rows, int64_t row_bytes);
// Of the logits that the op holds at a time; 0 for other ops.
int64_t LogitsBytes(const TrainingCall& call);
int64_t LossScratchBytes(const TrainingCall& call, const TrainingContext& context);

// linear_cross_entropy computes the losses (or logits) where the context evaluates, and else
// nothing: its gradient computes them on its way. Errors, on part 0: those of links.
Status ComputeLoss(const TrainingCall& call, const TrainingContext& context, const OpTeam& team);

}  // namespace weft::backend
