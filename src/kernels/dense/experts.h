// Kernels of mixtures of experts in training.
//
// Each token has `used` slots, one per expert that it uses: slot number token * used + k is for its
// k-th expert. A matrix with one row per slot has its rows in the order of an ExpertPlan
// (kernels/experts.h), that is, sorted by expert: row i belongs to slot plan.slots[i], and rows
// [plan.begin[e], plan.begin[e + 1]) belong to the rank's e-th expert. Let held be
// plan.begin[experts]. The first `held` rows belong to experts that the rank has; the rows after
// them are zeros. Kernels read `held` from the plan, so that arguments stay the same between steps.
//
// dense/lookup.h explains the calling convention, parts and scratch memory.
#pragma once

#include "kernels/experts.h"

namespace weft::kernels::dense {

// y[i] = x[token of row i] for i < held, multiplied by weights[slot of row i] if `weights` is not
// null.
struct GatherRowsArgs {
    ExpertPlan plan;
    int64_t experts = 0, used = 0;
    ConstMatrix x;                   // [tokens, cols], any type
    const float* weights = nullptr;  // [tokens, used] or null
    int64_t cols = 0;
    Matrix y;  // [tokens * used, cols], any type
};
void GatherRows(const Kernels& kernels, const GatherRowsArgs& args, int part, int parts);

// Products of each expert's rows with its matrix [n, k]:
//   kNT  c [rows, n] = a [rows, k] . W^T      forward
//   kNN  c [rows, k] = a [rows, n] . W        gradient of the input
//   kTN  W [n, k] += a [rows, n]^T . b [rows, k]    gradient of the matrix
//   Only the products of experts [first, last) of the rank are computed. The matrices of these
//   experts are stacked in `w` (kNT, kNN) or `dw` (kTN), beginning with expert `first`. So if the
//   matrices have a block type, the caller can decode and multiply a few experts at a time. Experts
//   to which no row belongs are skipped. The columns of all products are divided among the parts so
//   that each part has about the same cost. A product that costs more than twice the average share
//   of a part is instead divided among all parts by Kernels::gemm.
enum class ExpertProduct : uint8_t { kNT, kNN, kTN };
struct ExpertGemmArgs {
    ExpertProduct product = ExpertProduct::kNT;
    Compute compute = Compute::kF32;
    const int32_t* begin = nullptr;  // ExpertPlan::begin
    int64_t first = 0, last = 0;
    int64_t n = 0, k = 0;
    ConstMatrix a;  // [tokens * used, k or n], sorted by expert
    ConstMatrix b;  // kTN: [tokens * used, k], sorted by expert
    ConstMatrix w;  // kNT, kNN: [(last - first) * n, k]
    Matrix c;       // kNT, kNN: [tokens * used, n or k], sorted by expert
    Matrix dw;      // kTN: [(last - first) * n, k]
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
// slots: the maximum number of rows; all of them may belong to one expert.
int64_t ExpertGemmScratchBytes(const Kernels& kernels, const ExpertGemmArgs& args, int64_t slots);
void ExpertGemm(const Kernels& kernels, const ExpertGemmArgs& args, int part, int parts);

// y[t] = base[t] + the sum of weights[slot] * x[place[slot]] over the slots of token t whose
// experts the rank has, in the order of k. The sum is computed in float32. base[t] is added to it
// last, also in float32; then the result is rounded once to y's type.
struct CombineArgs {
    ExpertPlan plan;  // only `place` is read
    int64_t used = 0;
    const float* x = nullptr;        // [tokens * used, cols], sorted by expert
    const float* weights = nullptr;  // [tokens, used]; null: ones
    ConstMatrix base;                // [tokens, cols], any type; no data: zeros
    int64_t tokens = 0, cols = 0;
    Matrix y;  // [tokens, cols], any type; may be base
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
int64_t CombineScratchBytes(const CombineArgs& args);
void Combine(const Kernels& kernels, const CombineArgs& args, int part, int parts);

// The gradients of a weighted sum of experts (expert_sum), computed from the products of the rows
// of dy with the experts' matrices. For each slot whose expert the rank has, with i = place[slot]:
//   dweights[slot] = products[i] . x[i]
//   dx[i] = weights[slot] * products[i]
// dweights of slots whose expert the rank does not have are 0. Rows of dx after the first `held`
// are not written; call ClearRest for these rows.
struct ExpertWeightGradArgs {
    ExpertPlan plan;  // only `place` is read
    int64_t used = 0;
    const float* products = nullptr;  // [tokens * used, cols], sorted by expert
    ConstMatrix x;                    // [tokens * used, cols], sorted by expert, any type
    const float* weights = nullptr;   // [tokens, used]
    int64_t tokens = 0, cols = 0;
    Matrix dx;                  // [tokens * used, cols], sorted by expert, any type
    float* dweights = nullptr;  // [tokens, used]
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
int64_t ExpertWeightGradScratchBytes(const ExpertWeightGradArgs& args);
void ExpertWeightGrad(const Kernels& kernels, const ExpertWeightGradArgs& args, int part,
                      int parts);

// Sets rows [held, tokens * used) of y to zeros.
struct ClearRestArgs {
    ExpertPlan plan;  // only `begin` is read
    int64_t experts = 0, used = 0;
    int64_t tokens = 0, cols = 0;
    Matrix y;  // [tokens * used, cols], any type
};
void ClearRest(const ClearRestArgs& args, int part, int parts);

// ---- Biases and weighed inputs -----------------------------------------------------------------

// y[i] = x[i] + the bias of row i's expert, for i < held. Call ClearRest for the other rows.
struct ExpertBiasArgs {
    ExpertPlan plan;
    int64_t experts = 0, used = 0;
    ConstMatrix x;                // [tokens * used, cols], sorted by expert, any type
    const float* bias = nullptr;  // [experts, cols]
    int64_t cols = 0;
    Matrix y;  // as x
};
void ExpertBias(const Kernels& kernels, const ExpertBiasArgs& args, int part, int parts);

// db[e] += the sum of the expert's rows of dy. With weights, dy has a row per token, and the sum is
// the sum of weights[slot] * dy[token of slot]. Parts divide the columns.
struct ExpertBiasGradArgs {
    ExpertPlan plan;
    int64_t experts = 0, used = 0;
    ConstMatrix dy;                  // [tokens * used, cols], sorted by expert; or [tokens, cols]
    const float* weights = nullptr;  // [tokens, used] or null
    int64_t cols = 0;
    float* db = nullptr;  // [experts, cols]
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
int64_t ExpertBiasGradScratchBytes(const ExpertBiasGradArgs& args);
void ExpertBiasGrad(const Kernels& kernels, const ExpertBiasGradArgs& args, int part, int parts);

// y[t] = base[t] + the sum of weights[slot] * the bias of the slot's expert, over the slots of
// token t whose experts the rank has; and the gradient of the weights, dy[t] . bias.
struct ExpertBiasSumArgs {
    const int32_t* ids = nullptr;  // [tokens, used]
    int64_t first_expert = 0, experts = 0, used = 0;
    const float* base = nullptr;     // [tokens, cols]
    const float* weights = nullptr;  // [tokens, used]
    const float* bias = nullptr;     // [experts, cols]
    int64_t tokens = 0, cols = 0;
    float* y = nullptr;  // [tokens, cols]; may be base
};
void ExpertBiasSum(const ExpertBiasSumArgs& args, int part, int parts);
struct ExpertBiasSumGradArgs {
    const int32_t* ids = nullptr;
    int64_t first_expert = 0, experts = 0, used = 0;
    const float* dy = nullptr;  // [tokens, cols]
    const float* bias = nullptr;
    int64_t tokens = 0, cols = 0;
    float* dweights = nullptr;  // [tokens, used]
};
void ExpertBiasSumGrad(const ExpertBiasSumGradArgs& args, int part, int parts);

// The gradients of weights[slot] * x[token of slot] (program/weigh_rows.h): dx[t] = the sum of
// weights[slot] * dy[place[slot]], dweights[slot] = dy[place[slot]] . x[t]; zeros for the experts
// that the rank does not have.
struct WeighRowsGradArgs {
    ExpertPlan plan;  // only `place` is read
    int64_t used = 0;
    ConstMatrix dy;                  // [tokens * used, cols], sorted by expert, any type
    ConstMatrix x;                   // [tokens, cols], any type
    const float* weights = nullptr;  // [tokens, used]
    int64_t tokens = 0, cols = 0;
    Matrix dx;                  // [tokens, cols], any type
    float* dweights = nullptr;  // [tokens, used]
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
int64_t WeighRowsGradScratchBytes(const WeighRowsGradArgs& args);
void WeighRowsGrad(const Kernels& kernels, const WeighRowsGradArgs& args, int part, int parts);

// Sets y [rows, cols] to ones.
struct OnesArgs {
    int64_t rows = 0, cols = 0;
    float* y = nullptr;
};
void Ones(const OnesArgs& args, int part, int parts);

// ---- Routers -----------------------------------------------------------------------------------

// The gradient of kernels::Route with respect to the logits. Route computes the weights w = scale *
// s / sum(s) with `renormalise`, else w = scale * s, where s are the scores of the row's chosen
// experts.
struct RouteGradArgs {
    const float* dweights = nullptr;          // [rows, used]
    const float* logits = nullptr;            // [rows, experts]
    const int32_t* ids = nullptr;             // [rows, used]
    int64_t rows = 0, experts = 0, used = 0;  // used: at most kMostExperts
    bool sigmoid = false;                     // else softmax
    bool renormalise = false;
    float scale = 1;
    const float* factors = nullptr;  // [experts] or null: the weights are also times these
    float* dlogits = nullptr;        // [rows, experts]
    float* dfactors = nullptr;       // RouteFactorsGrad: [experts]
};
void RouteGrad(const RouteGradArgs& args, int part, int parts);
// Adds the addends of all rows to dfactors. Part 0 does all of the work.
void RouteFactorsGrad(const RouteGradArgs& args, int part, int parts);

// y = x * sigmoid(gate of the row), or times softplus(gate) = log(1 + exp(gate)), or times gate.
struct GateRowsArgs {
    ConstMatrix x;                // [rows, cols], any type
    const float* gate = nullptr;  // [rows]
    int64_t rows = 0, cols = 0;
    Matrix y;  // [rows, cols], any type; may be x
    bool softplus = false, product = false;
};
void GateRows(const Kernels& kernels, const GateRowsArgs& args, int part, int parts);

// dx = dy * s, dgate = (dy . x) * s', with s = sigmoid(gate of the row), softplus(gate) or gate.
struct GateRowsGradArgs {
    ConstMatrix dy, x;            // [rows, cols], any types
    const float* gate = nullptr;  // [rows]
    int64_t rows = 0, cols = 0;
    Matrix dx;               // [rows, cols], any type
    float* dgate = nullptr;  // [rows]
    bool softplus = false, product = false;
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
int64_t GateRowsGradScratchBytes(const GateRowsGradArgs& args);
void GateRowsGrad(const Kernels& kernels, const GateRowsGradArgs& args, int part, int parts);

// The op router_load in two phases. For each expert, the op counts the rows that chose the expert,
// and sums the expert's scores over all rows. Phase 1: scores = softmax(logits).
struct RouterScoresArgs {
    const float* logits = nullptr;  // [rows, experts]
    int64_t rows = 0, experts = 0;
    float* scores = nullptr;  // [rows, experts]
};
void RouterScores(const RouterScoresArgs& args, int part, int parts);
// Phase 2: load = before + {counts, sums}. Rows are added in order, in float64. The experts are
// divided among the parts.
struct RouterLoadArgs {
    const float* scores = nullptr;            // [rows, experts]
    const int32_t* ids = nullptr;             // [rows, used]
    int64_t rows = 0, experts = 0, used = 0;  // experts: at most kMostExperts
    const float* before = nullptr;            // [2, experts]; null: zeros
    float* load = nullptr;                    // [2, experts]: counts, then sums; may be `before`
};
void RouterLoad(const RouterLoadArgs& args, int part, int parts);

// dlogits = p * (dsums - sum(p * dsums)) of each row, with p = softmax(logits). The counts have no
// gradient.
struct RouterLoadGradArgs {
    const float* dload = nullptr;   // [2, experts]: only the second row is read
    const float* logits = nullptr;  // [rows, experts]
    int64_t rows = 0, experts = 0;
    float* dlogits = nullptr;  // [rows, experts]
};
void RouterLoadGrad(const RouterLoadGradArgs& args, int part, int parts);

// The load-balancing loss (Fedus et al. 2022): y = experts / rows^2 * sum(counts * sums), where
// rows = max(sum(counts) / used, 1). Part 0 does all of the work.
struct LoadBalanceArgs {
    const float* load = nullptr;  // [2, experts]
    int64_t experts = 0, used = 0;
    float* y = nullptr;      // [1]
    double* wide = nullptr;  // [1] or null: y before rounding
};
void LoadBalance(const LoadBalanceArgs& args, int part, int parts);

// dload = {0, dy * experts / rows^2 * counts}. Part 0 does all of the work.
struct LoadBalanceGradArgs {
    const float* dy = nullptr;    // [1]
    const float* load = nullptr;  // [2, experts]
    int64_t experts = 0, used = 0;
    float* dload = nullptr;  // [2, experts]
};
void LoadBalanceGrad(const LoadBalanceGradArgs& args, int part, int parts);

}  // namespace weft::kernels::dense
