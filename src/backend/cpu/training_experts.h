// Mixtures of experts in training: part of training.cc. Rows of a value [T, K, n] stand sorted by
// expert; then an expert's rows are one matrix, and its products are those of dense/gemm.h. Rows
// behind those of the experts that this rank holds are zeros.
#pragma once

#include "backend/cpu/training_ops.h"

namespace weft::backend {

// What the ops of experts share in a step.
struct ExpertBuffers {
    program::ValueId ids = program::kNoValue;  // the choice that the plan is of; kNoValue: none yet
    // Rows [begin[e], begin[e + 1]) are those of the rank's e-th expert; row i is slots[i] (a
    // token's number times K, plus k), whose place is i; -1: another rank's.
    std::vector<int32_t> begin, slots, place;
    std::byte* rows = nullptr;  // as many bytes as ExpertRowsBytes says
    double balance = 0;         // what load_balance made last
};

// Whether the op is made by ComputeExperts.
bool IsExpertOp(program::OpKind kind);
// Of ExpertBuffers::rows, and of each part's scratch; 0 for other ops.
int64_t ExpertRowsBytes(const TrainingCall& call);
int64_t ExpertScratchBytes(const TrainingCall& call, const TrainingContext& context);
void ComputeExperts(const TrainingCall& call, const TrainingContext& context, const OpTeam& team);

}  // namespace weft::backend
