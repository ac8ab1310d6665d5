// What each op of a training Program does on the CPU: part of training.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "kernels/dense/dense.h"
#include "kernels/kernels.h"
#include "program/program.h"

namespace weft::backend {

// An operand in memory, row-major float32 (or int32: tokens, positions, rows, targets). A vector is
// one row.
struct TrainingOperand {
    float* data = nullptr;
    int64_t rows = 0, cols = 0;
    kernels::dense::Matrix matrix() const { return {data, cols}; }
    const int32_t* ints() const { return reinterpret_cast<const int32_t*>(data); }
};

// One op of one step.
struct TrainingCall {
    const program::Op* op = nullptr;
    std::vector<TrainingOperand> in, out;
    const float* table = nullptr;  // of a rope: cosines and sines of the step's rows
    // Of attention and its gradient: logarithms of the rows' sums [heads, lse_stride]; and for the
    // gradient, what attention gave.
    float* lse = nullptr;
    int64_t lse_stride = 0;
    program::ValueId attended_id = program::kNoValue;
    TrainingOperand attended;
};

struct TrainingContext {
    const kernels::Kernels* kernels = nullptr;
    const kernels::dense::DenseKernels* dense = nullptr;
    kernels::dense::Compute compute = kernels::dense::Compute::kF32;  // of products
    std::span<std::byte> scratch;  // of all parts, one after another
    int64_t scratch_bytes = 0;     // of one
    std::span<const kernels::Sequence> sequences;
    Groups groups;
    int64_t step = 0;
    float loss_gradient = 1;
    float* losses = nullptr;  // of each output row
};

// Whether training knows the op. Attention with a cache is not for training.
bool IsTrainingOp(const program::Op& op);
// Whether the op is made by Communicate, on one thread.
bool IsCommunication(program::OpKind kind);

// Scratch that a part needs for the op.
int64_t ScratchBytes(const TrainingCall& call, const TrainingContext& context);
// This part's share of the op. No parts share what they write.
void Compute(const TrainingCall& call, const TrainingContext& context, int part, int parts);
// All of it. Errors: those of links.
Status Communicate(const TrainingCall& call, const TrainingContext& context);

}  // namespace weft::backend
