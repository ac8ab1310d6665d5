// Kernels for mixtures of experts, and for projections with one matrix per head.
//
// These kernels are loops around the matmul of a kernel table, so they work with every table. The
// tokens of a step are sorted by expert, and an expert's weights are read once for all tokens that
// chose the expert. A row has the same bits as if the table's matmul computed it alone, regardless
// of other rows and of the number of parts.
//
// As in kernels.h, every kernel takes (args, part, parts), allocates nothing and keeps no state.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels {

// A stack: consecutive matrices of one shape, in the packed form of one kernel table.
struct PackedStack {
    DType dtype = DType::kF32;
    int64_t count = 0, rows = 0, cols = 0;
    int64_t stride_bytes = 0;   // per matrix, a multiple of 64
    std::byte* data = nullptr;  // 64-byte aligned
    PackedMatrix Matrix(int64_t i) const { return {dtype, rows, cols, data + i * stride_bytes}; }
};
int64_t StackStride(const Kernels& kernels, DType dtype, int64_t rows, int64_t cols);

inline constexpr int64_t kMostExperts = 1024;

// How a router computes scores from logits: by a softmax, by a sigmoid of each logit, or as
// sqrt(log(1 + exp(logit))).
enum class RouterScore : uint8_t { kSoftmax, kSigmoid, kSqrtSoftplus, kSparseMixer };

// Chooses `used` of `experts` for each row of logits. Experts are ranked by score + bias, or by the
// logit if there are neither bias nor groups; experts with equal values are ranked by id. Experts
// form `groups` groups. Only experts of the `groups_used` best groups can be chosen; groups are
// ranked by the sum of their `group_best` best experts. The weight of a chosen expert is its score
// (with `renormalise`, divided by the sum of the chosen experts' scores), times `scale`, times its
// entry in `factors`. Ids and weights are in the order of choice. DeepSeek-V2 and V3 (DeepSeek-AI
// 2024), Mixtral (Jiang et al. 2024).
struct RouteArgs {
    const float* logits = nullptr;            // [rows, experts]
    const float* bias = nullptr;              // [experts] or null
    const float* factors = nullptr;           // [experts] or null
    int64_t rows = 0, experts = 0, used = 0;  // experts: at most kMostExperts
    // Not null: experts are not ranked but looked up. Expert i of a row is table[tokens[row] * used
    // + i].
    const int32_t* tokens = nullptr;  // [rows]
    const float* table = nullptr;     // [vocab, used]
    int64_t vocab = 0;
    RouterScore score = RouterScore::kSoftmax;
    float jitter = 0;  // of kSparseMixer
    int64_t groups = 1, groups_used = 1, group_best = 1;
    bool renormalise = false;
    float scale = 1;
    int32_t* ids = nullptr;    // [rows, used]
    float* weights = nullptr;  // [rows, used]
};
void Route(const RouteArgs& args, int part, int parts);

// Slot row * used + k is the k-th expert that a row chose. The plan lists the slots whose expert
// this rank has, sorted by expert, then by slot: entries [begin[e], begin[e + 1]) of `slots` belong
// to expert first_expert + e. Values with a row for each slot have their rows in this order.
struct ExpertPlan {
    int32_t* begin = nullptr;  // [count + 1]
    int32_t* slots = nullptr;  // [rows * used]
    // [rows * used]: the inverse of `slots`, slots[place[slot]] == slot. -1 if another rank has the
    // slot's expert. Null: not needed.
    int32_t* place = nullptr;
};
struct PlanExpertsArgs {
    const int32_t* ids = nullptr;  // [rows, used]
    int64_t rows = 0, used = 0;
    int64_t first_expert = 0, count = 0;
    ExpertPlan plan;
};
// Part 0 does all of the work.
void PlanExperts(const PlanExpertsArgs& args, int part, int parts);

// Bytes of scratch per part of ExpertMatMul, ExpertSum and HeadMatMul, for inputs of `cols`
// columns.
int64_t GroupScratchBytes(const Kernels& kernels, int64_t cols);

// y[i] = weights[slot] * x[token of slot], where slot is plan.slots[i]. rest[slot] = 1 for all
// slots.
struct WeighRowsArgs {
    const float* x = nullptr;        // [rows, cols]
    const float* weights = nullptr;  // [rows, used]
    ExpertPlan plan;
    int64_t rows = 0, cols = 0, used = 0, experts = 0;
    float* y = nullptr;
    float* rest = nullptr;  // [rows, used]
};
void WeighRows(const WeighRowsArgs& args, int part, int parts);

// y[i] = a row of x times the matrix of the expert of slot plan.slots[i], plus the expert's bias.
struct ExpertMatMulArgs {
    PackedStack weight;
    const float* bias = nullptr;  // [count, weight.rows] or null
    ExpertPlan plan;
    int64_t used = 0;
    bool by_token = false;     // x has a row per token; else x has a row for each i
    const float* x = nullptr;  // used if the weight's type has ActivationFormat::kNone
    int64_t x_stride = 0;
    const std::byte* quantized = nullptr;  // used with the other formats
    float* y = nullptr;
    int64_t y_stride = 0;
    std::byte* scratch = nullptr;  // [parts, scratch_bytes], 64-byte aligned
    int64_t scratch_bytes = 0;
};
void ExpertMatMul(const Kernels& kernels, const ExpertMatMulArgs& args, int part, int parts);

// out[t] = base[t] + the sum of weights[slot] * (x[i] times the matrix of the slot's expert + bias)
// over the entries i of the plan whose slot belongs to token t, in the order of the plan. The sum
// is computed in float64.
struct ExpertSumArgs {
    PackedStack weight;
    const float* bias = nullptr;  // [count, weight.rows] or null
    ExpertPlan plan;
    int64_t used = 0;
    const float* weights = nullptr;  // [rows, used], by slot
    const float* x = nullptr;        // a row for each i; or `quantized`, as in ExpertMatMulArgs
    int64_t x_stride = 0;
    const std::byte* quantized = nullptr;
    int64_t rows = 0;          // tokens
    int64_t segment_cols = 0;  // as in MatMulArgs
    Range x_used{0, 0};
    const float* base = nullptr;  // [rows, weight.rows]; or wide_base; or neither
    const double* wide_base = nullptr;
    double* wide = nullptr;  // [rows, weight.rows]: the sums
    float* y = nullptr;      // the rounded sums; may be null
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
void ExpertSum(const Kernels& kernels, const ExpertSumArgs& args, int part, int parts);

// For each token t and head: the n columns of y from head * n on = the k columns of x from head * k
// on, times the matrix of the head.
struct HeadMatMulArgs {
    PackedStack weight;                    // a matrix [n, k] per head
    const float* x = nullptr;              // [rows, heads * k]
    const std::byte* quantized = nullptr;  // rows * heads rows of k
    int64_t rows = 0;
    float* y = nullptr;  // [rows, heads * n]
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
void HeadMatMul(const Kernels& kernels, const HeadMatMulArgs& args, int part, int parts);

}  // namespace weft::kernels
