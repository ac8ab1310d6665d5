// Experts in training. A value [T, K, n] has row t * K + k for expert k of row t, as in inference
// (experts.cc); rows of experts that other ranks hold are zeros.
#include <algorithm>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/gemm.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"
#include "backend/gpu/lower/products.h"

namespace weft::backend::on_gpu {
namespace {

using program::ValueId;

constexpr int64_t kSlotTile = 64;  // tile of gemm.comp for rows that are slots

// Arguments of expert_dot.comp.
struct DotArgs {
    uint64_t products = 0, x = 0, ids = 0, weights = 0, dx = 0, dweights = 0;
    uint32_t cols = 0, slots = 0, first_expert = 0, experts = 0;
};

// Arguments of weigh_rows_grad.
struct WeighGradArgs {
    uint64_t dy = 0, x = 0, dx = 0, ids = 0, weights = 0, dweights = 0;
    uint32_t tokens = 0, cols = 0, used = 0, first_expert = 0, experts = 0;
};
// Arguments of expert_bias.comp.
struct BiasArgs {
    uint64_t x = 0, ids = 0, weights = 0, bias = 0, y = 0;
    uint32_t slots = 0, cols = 0, used = 0, first_expert = 0, experts = 0;
};
struct BiasGradArgs {
    uint64_t dy = 0, plan = 0, weights = 0, db = 0;
    uint32_t cols = 0, used = 0;
};

// Number of matrices of a stack: the first dimension of its value.
int64_t ExpertsOf(const Emitter& e, ValueId stack) {
    return e.program().value(stack).shape[0];
}
// The slots of a routing, for a stack of matrices.
Result<GemmSlots> SlotsOf(Emitter& e, GemmSlots::Kind kind, ValueId ids, int64_t first_expert,
                          ValueId stack) {
    const int64_t experts = ExpertsOf(e, stack);
    WEFT_ASSIGN(const SlotOrder order, OrderSlots(e, ids, first_expert, experts, kSlotTile));
    GemmSlots slots;
    slots.kind = kind;
    slots.plan = order.plan;
    slots.experts = experts;
    slots.tile = order.tile;
    slots.blocks = order.blocks;
    return slots;
}
// Number of slots that share a row of x.
int64_t SharedBy(const Emitter& e, ValueId x, ValueId ids) {
    return e.program().value(x).shape.rank == 3 ? 1 : e.Cols(ids);
}

// c[slot] = the row of x of the slot times the matrix of its expert (NN) or its transpose (NT).
struct SlotProduct {
    GemmForm form;
    ValueId x, ids, stack;
    int64_t first_expert;
};
Status EmitSlotProduct(Emitter& e, const SlotProduct& product, const GemmMatrix& c) {
    Gemm gemm;
    gemm.form = product.form;
    gemm.c = c;
    WEFT_ASSIGN(gemm.a, MatrixOf(e, product.x));
    WEFT_ASSIGN(GemmSlots slots, SlotsOf(e, GemmSlots::Kind::kRows, product.ids,
                                         product.first_expert, product.stack));
    slots.a_used = SharedBy(e, product.x, product.ids);
    const WeightPlace* const weight = DecodedWeight(e, product.stack);
    if (weight == nullptr) {
        WEFT_ASSIGN(gemm.b, MatrixOf(e, product.stack));
        return EmitGemm(e, gemm, slots);
    }
    const int64_t matrices = slots.experts;
    const int64_t piece = RowsAtOnce(e, *weight, weight->rows) / weight->rows;
    for (int64_t first = 0; first < matrices; first += piece) {
        slots.first_matrix = first;
        slots.experts = std::min(piece, matrices - first);
        WEFT_ASSIGN(gemm.b,
                    RowsOfWeight(e, *weight, first * weight->rows, slots.experts * weight->rows));
        WEFT_TRY(EmitGemm(e, gemm, slots));
    }
    return {};
}
// Writes the slot products to float32 scratch memory.
Result<GemmMatrix> EmitSlotProducts(Emitter& e, const SlotProduct& product, int64_t cols) {
    const int64_t slots = e.Rows(product.ids) * e.Cols(product.ids);
    WEFT_ASSIGN(
        const Region region,
        e.Scratch("expert products", static_cast<uint64_t>(RowBytes(DType::kF32, slots * cols))));
    const GemmMatrix c{DType::kF32, region.address, slots, cols, cols};
    WEFT_TRY(EmitSlotProduct(e, product, c));
    return c;
}

// dw[expert] += the sum over its slots of dy[slot]^T . x[slot], for a stack dw. weights: of the
// slots; may be empty.
struct SlotGradient {
    ValueId dy, x, ids, weights, dw;
    int64_t first_expert;
};
Status EmitSlotGradient(Emitter& e, const SlotGradient& gradient) {
    Gemm gemm;
    gemm.form = GemmForm::kTN;
    gemm.accumulate = true;
    WEFT_ASSIGN(gemm.a, MatrixOf(e, gradient.dy));
    WEFT_ASSIGN(gemm.b, MatrixOf(e, gradient.x));
    WEFT_ASSIGN(gemm.c, MatrixOf(e, gradient.dw));
    WEFT_ASSIGN(GemmSlots slots, SlotsOf(e, GemmSlots::Kind::kTerms, gradient.ids,
                                         gradient.first_expert, gradient.dw));
    slots.a_used = SharedBy(e, gradient.dy, gradient.ids);
    slots.b_used = SharedBy(e, gradient.x, gradient.ids);
    if (gradient.weights != program::kNoValue) {
        WEFT_TRY(CheckWide(e, gradient.weights));
        slots.factors = e.All(gradient.weights);
    }
    return EmitGemm(e, gemm, slots);
}

Status CheckNoBias(bool bias) {
    if (!bias) return {};
    return MakeError(ErrorCode::kUnsupported, "a bias is an op of its own (train/graph.cc)");
}

}  // namespace

Status LowerExpertGemm(Emitter& e, const program::Op& op, const program::ExpertMatMul& a) {
    WEFT_TRY(CheckNoBias(op.inputs.size() == 4));
    WEFT_ASSIGN(const GemmMatrix y, MatrixOf(e, op.outputs[0]));
    return EmitSlotProduct(
        e, {GemmForm::kNT, op.inputs[0], op.inputs[1], op.inputs[2], a.first_expert}, y);
}

Status LowerExpertGemm(Emitter& e, const program::Op& op, const program::ExpertSum& a) {
    WEFT_TRY(CheckNoBias(a.bias));
    const SlotSum sum{op.inputs[1],   op.outputs[0],
                      op.inputs[2],   a.base ? op.inputs.back() : program::kNoValue,
                      a.first_expert, ExpertsOf(e, op.inputs[3])};
    WEFT_ASSIGN(
        const GemmMatrix products,
        EmitSlotProducts(e, {GemmForm::kNT, op.inputs[0], sum.ids, op.inputs[3], a.first_expert},
                         e.Cols(sum.y)));
    return EmitSlotSum(e, sum, products.All());
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertMatMulGradInput& a) {
    const ValueId dx = op.outputs[0];
    if (e.program().value(dx).shape.rank == 3) {
        WEFT_ASSIGN(const GemmMatrix to, MatrixOf(e, dx));
        return EmitSlotProduct(
            e, {GemmForm::kNN, op.inputs[0], op.inputs[1], op.inputs[2], a.first_expert}, to);
    }
    const SlotSum sum{op.inputs[1],      dx,
                      program::kNoValue, program::kNoValue,
                      a.first_expert,    ExpertsOf(e, op.inputs[2])};
    WEFT_ASSIGN(
        const GemmMatrix products,
        EmitSlotProducts(e, {GemmForm::kNN, op.inputs[0], sum.ids, op.inputs[2], a.first_expert},
                         e.Cols(dx)));
    return EmitSlotSum(e, sum, products.All());
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertMatMulGradWeight& a) {
    return EmitSlotGradient(e, {op.inputs[0], op.inputs[1], op.inputs[2], program::kNoValue,
                                op.outputs[0], a.first_expert});
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertSumGradWeight& a) {
    return EmitSlotGradient(
        e, {op.inputs[0], op.inputs[1], op.inputs[2], op.inputs[3], op.outputs[0], a.first_expert});
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertSumGradInput& a) {
    const ValueId ids = op.inputs[2], dx = op.outputs[0];
    WEFT_ASSIGN(
        const GemmMatrix products,
        EmitSlotProducts(e, {GemmForm::kNN, op.inputs[0], ids, op.inputs[4], a.first_expert},
                         e.Cols(dx)));
    Operands io(e);
    DotArgs args;
    args.products = io.Reads(products.All());
    args.x = io.Reads(op.inputs[1], 0);
    args.ids = io.Reads(ids);
    args.weights = io.Reads(op.inputs[3]);
    args.dx = io.Writes(dx, 1);
    args.dweights = io.Writes(op.outputs[1]);
    args.cols = static_cast<uint32_t>(products.cols);
    args.slots = static_cast<uint32_t>(products.rows);
    args.first_expert = static_cast<uint32_t>(a.first_expert);
    args.experts = static_cast<uint32_t>(ExpertsOf(e, op.inputs[4]));
    return io.Run("expert_dot", {GroupSize(e.gpu()), io.types()}, args,
                  {RowGroups(products.rows), 1, 1}, PinnedSubgroup(e.gpu()));
}

Status Lower(Emitter& e, const program::Op& op, const program::WeighRowsGrad& a) {
    const ValueId x = op.inputs[1], ids = op.inputs[2];
    Operands io(e);
    io.SetRows(e.Cols(x));
    WeighGradArgs args;
    args.dy = io.Reads(op.inputs[0], 0);
    args.x = io.Reads(x, 1);
    args.dx = io.Writes(op.outputs[0], 2);
    args.ids = io.Reads(ids);
    args.weights = io.Reads(op.inputs[3]);
    args.dweights = io.Writes(op.outputs[1]);
    args.tokens = static_cast<uint32_t>(e.Rows(x));
    args.cols = static_cast<uint32_t>(e.Cols(x));
    args.used = static_cast<uint32_t>(e.Cols(ids));
    args.first_expert = static_cast<uint32_t>(a.forward.first_expert);
    args.experts = static_cast<uint32_t>(a.forward.experts);
    return io.Run("weigh_rows_grad", {NormGroup(args.cols), io.types(), io.wide()}, args,
                  {RowGroups(args.tokens), 1, 1});
}

namespace {

// The sizes of an op with the biases of `bias`.
BiasArgs BiasArgsOf(const Emitter& e, Operands& io, ValueId ids, ValueId bias, int64_t first) {
    BiasArgs args;
    args.ids = io.Reads(ids);
    args.bias = io.Reads(bias);
    args.slots = static_cast<uint32_t>(CountOf(e, ids));
    args.cols = static_cast<uint32_t>(e.Cols(bias));
    args.used = static_cast<uint32_t>(e.Cols(ids));
    args.first_expert = static_cast<uint32_t>(first);
    args.experts = static_cast<uint32_t>(ExpertsOf(e, bias));
    return args;
}

}  // namespace

Status Lower(Emitter& e, const program::Op& op, const program::ExpertBias& a) {
    Operands io(e);
    BiasArgs args = BiasArgsOf(e, io, op.inputs[1], op.inputs[2], a.first_expert);
    args.x = io.Reads(op.inputs[0], 0);
    args.y = io.Writes(op.outputs[0], 1);
    return io.Run("expert_bias", {kWalkGroup, io.types()}, args,
                  {CeilDiv(args.cols, kWalkGroup), RowGroups(args.slots), 1});
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertBiasSum& a) {
    Operands io(e);
    BiasArgs args = BiasArgsOf(e, io, op.inputs[1], op.inputs[3], a.first_expert);
    args.x = io.Reads(op.inputs[0], 0);
    args.weights = io.Reads(op.inputs[2]);
    args.y = io.Writes(op.outputs[0], 1);
    return io.Run("expert_bias_sum", {kWalkGroup, io.types()}, args,
                  {CeilDiv(args.cols, kWalkGroup), RowGroups(e.Rows(op.outputs[0])), 1});
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertBiasSumGrad& a) {
    Operands io(e);
    BiasArgs args = BiasArgsOf(e, io, op.inputs[1], op.inputs[2], a.first_expert);
    args.x = io.Reads(op.inputs[0], 0);
    args.weights = io.Writes(op.outputs[0]);
    return io.Run("expert_bias_sum_grad", {NormGroup(args.cols), io.types()}, args,
                  {RowGroups(args.slots), 1, 1});
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertBiasGrad& a) {
    constexpr int64_t kColumns = kWalkGroup / 8;  // of a workgroup of expert_bias_grad
    const ValueId ids = op.inputs[1], db = op.outputs[0];
    const int64_t experts = ExpertsOf(e, db);
    WEFT_ASSIGN(const SlotOrder order, OrderSlots(e, ids, a.first_expert, experts, kSlotTile));
    Operands io(e);
    BiasGradArgs args;
    args.dy = io.Reads(op.inputs[0], 0);
    args.plan = io.Reads(order.plan);
    if (a.weighs) args.weights = io.Reads(op.inputs[2]);
    args.db = io.Adds(db);
    args.cols = static_cast<uint32_t>(e.Cols(db));
    args.used = static_cast<uint32_t>(SharedBy(e, op.inputs[0], ids));
    return io.Run("expert_bias_grad", {kWalkGroup, io.types()}, args,
                  {CeilDiv(args.cols, kColumns), experts, 1});
}

}  // namespace weft::backend::on_gpu
