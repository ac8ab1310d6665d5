// What each op of a training Program does on the CPU: part of training.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/training.h"
#include "backend/transfer.h"
#include "kernels/dense/dense.h"
#include "kernels/kernels.h"
#include "program/program.h"

namespace weft::backend {

// How the kernels call a type that values of training have; all but the narrow ones are kF32.
constexpr kernels::dense::Element ElementOf(DType dtype) {
    using kernels::dense::Element;
    if (dtype == DType::kBF16) return Element::kBf16;
    return dtype == DType::kF16 ? Element::kF16 : Element::kF32;
}

struct TrainingOperand : HostValue {
    int64_t count = 1;  // matrices of a stack, whose rows are counted through
    const int32_t* ints() const { return reinterpret_cast<const int32_t*>(data); }
    double* doubles() const { return reinterpret_cast<double*>(data); }
    kernels::dense::Element element() const { return ElementOf(dtype); }
    kernels::dense::Matrix matrix() const { return {data, cols, element()}; }
};

// One op of one step.
struct TrainingCall {
    const program::Op* op = nullptr;
    std::vector<TrainingOperand> in, out;
    const float* table = nullptr;  // of a rope: cosines and sines of the step's rows
    // Where a matrix product reads a weight of a block type: the weight as it is in memory. Its
    // operand is the scratch matrix that Unpack fills before the op.
    TrainingOperand packed;
};

// Rows of one token: from each to the next, -1 behind the last.
struct TokenChains {
    std::vector<int32_t> next;
    std::vector<bool> is_first;
};

// The threads that run an op together, each calling the same function.
struct OpTeam {
    int part = 0, parts = 1;
    std::function<void()> barrier;
};

struct ExpertBuffers;  // training_experts.h

// What the loss over a cut vocabulary needs beside logits: of a chunk's rows.
struct LossBuffers {
    std::vector<int32_t> zeros;
    std::vector<float> firsts, scales, stats;
    std::vector<float> predicted;  // logits of one row over the whole vocabulary
    bool failed = false;
};

struct TrainingContext {
    const kernels::Kernels* kernels = nullptr;
    const kernels::dense::DenseKernels* dense = nullptr;
    kernels::dense::Compute compute = kernels::dense::Compute::kF32;  // of products
    std::span<std::byte> scratch;  // of all parts, one after another
    int64_t scratch_bytes = 0;     // of one
    std::span<const kernels::Sequence> sequences;
    TokenChains chains;
    Groups groups;
    int64_t step = 0;
    UpdateStep update;
    std::vector<double>* sums = nullptr;  // of an update's op, shared by all parts
    bool evaluates = false;               // no gradients follow
    bool predicts = false;                // and logits are wanted in place of losses
    float loss_gradient = 1;
    float* losses = nullptr;  // of each output row
    float* logits = nullptr;  // of a chunk (training_loss.h)
    CpuLevel level = CpuLevel::kReference;
    LossBuffers* loss_buffers = nullptr;
    ExpertBuffers* experts = nullptr;
};

// C [m, n] = A . B, each operand as it is or turned.
kernels::dense::GemmArgs ProductArgs(const TrainingOperand& a, bool a_turned,
                                     const TrainingOperand& b, bool b_turned,
                                     const TrainingOperand& c, kernels::dense::Compute compute);
std::span<std::byte> ScratchOf(const TrainingContext& context, int part);

// Whether training knows the op. Attention with a cache is not for training.
bool IsTrainingOp(const program::Op& op);

// This part's rows of a matrix of a block type, as floats or narrow ones.
void UnpackRows(const TrainingOperand& from, const TrainingOperand& to,
                const TrainingContext& context, int part, int parts);
// The same of `packed`, into the op's operand.
void Unpack(const TrainingCall& call, const TrainingContext& context, int part, int parts);

// Scratch that a part needs for the op.
int64_t ScratchBytes(const TrainingCall& call, const TrainingContext& context);
// This part's share of the op. No parts share what they write.
void Compute(const TrainingCall& call, const TrainingContext& context, int part, int parts);
// All of a transfer (program/timeline.h), on one thread. Errors: those of links.
Status Communicate(const TrainingCall& call, const TrainingContext& context);

}  // namespace weft::backend
