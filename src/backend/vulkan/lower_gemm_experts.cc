// Experts in training. A value [T, K, n] has row t * K + k for expert k of row t, as in inference
// (lower_experts.cc); rows of experts that other ranks hold are zeros.
#include <algorithm>
#include <string>

#include "backend/vulkan/lower.h"
#include "backend/vulkan/lower_gemm.h"
#include "backend/vulkan/lower_parts.h"
#include "backend/vulkan/operands.h"
#include "backend/vulkan/products.h"

namespace weft::backend::vulkan {
namespace {

using program::ValueId;

constexpr int64_t kMostOrderedExperts = 1024;  // limit of expert_order.comp
constexpr int64_t kSlotTile = 64;              // tile of gemm.comp for rows that are slots

// Arguments of expert_order.comp.
struct OrderArgs {
    uint64_t ids = 0, plan = 0;
    uint32_t slots = 0, first_expert = 0, experts = 0, tile = 0, most_blocks = 0;
};
// Arguments of expert_dot.comp.
struct DotArgs {
    uint64_t products = 0, x = 0, ids = 0, weights = 0, dx = 0, dweights = 0;
    uint32_t cols = 0, slots = 0, first_expert = 0, experts = 0;
};

// Orders rows for a stack of `experts` matrices, by the ids of an op. Made once for all ops that
// share a routing.
Result<GemmSlots> EmitOrder(Emitter& e, ValueId ids, int64_t first_expert, int64_t experts) {
    if (experts > kMostOrderedExperts) {
        return MakeError(ErrorCode::kUnsupported,
                         "{} experts; Vulkan training kernels support at most {}", experts,
                         kMostOrderedExperts);
    }
    const int64_t count = e.Rows(ids) * e.Cols(ids);
    GemmSlots slots;
    slots.experts = experts;
    slots.tile = kSlotTile;
    slots.blocks = count / kSlotTile + std::min(experts + 1, count);
    const int64_t ints = 4 + 3 * slots.blocks + count + experts + 1;
    WEFT_ASSIGN(slots.plan,
                e.Scratch("expert order", static_cast<uint64_t>(ints) * sizeof(int32_t)));
    const std::string made = fmt::format("expert order {} {} {}", count, first_expert, experts);
    if (e.FindDerived(made, e.All(ids)) == slots.plan) return slots;
    OrderArgs args;
    args.ids = e.Address(ids);
    args.plan = slots.plan.address;
    args.slots = static_cast<uint32_t>(count);
    args.first_expert = static_cast<uint32_t>(first_expert);
    args.experts = static_cast<uint32_t>(experts);
    args.tile = static_cast<uint32_t>(kSlotTile);
    args.most_blocks = static_cast<uint32_t>(slots.blocks);
    constexpr uint32_t kInvocations = 256;  // each counts its own run of slots
    WEFT_TRY(e.Run("expert_order", {kInvocations}, args, {experts + 1, 1, 1}, {e.All(ids)},
                   {slots.plan}));
    e.NoteDerived(made, e.All(ids), slots.plan);
    return slots;
}

// Number of matrices of a stack: the first dimension of its value.
int64_t ExpertsOf(const Emitter& e, ValueId stack) {
    return e.program().value(stack).shape[0];
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
    WEFT_ASSIGN(gemm.b, MatrixOf(e, product.stack));
    WEFT_ASSIGN(GemmSlots slots,
                EmitOrder(e, product.ids, product.first_expert, ExpertsOf(e, product.stack)));
    slots.kind = GemmSlots::Kind::kRows;
    slots.a_used = SharedBy(e, product.x, product.ids);
    return EmitGemm(e, gemm, slots);
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
// slots, or none.
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
    WEFT_ASSIGN(GemmSlots slots,
                EmitOrder(e, gradient.ids, gradient.first_expert, ExpertsOf(e, gradient.dw)));
    slots.kind = GemmSlots::Kind::kTerms;
    slots.a_used = SharedBy(e, gradient.dy, gradient.ids);
    slots.b_used = SharedBy(e, gradient.x, gradient.ids);
    if (gradient.weights != program::kNoValue) slots.factors = e.All(gradient.weights);
    return EmitGemm(e, gemm, slots);
}

Status CheckFloat(const Emitter& e, ValueId id) {
    const DType dtype = e.program().value(id).dtype;
    if (dtype == DType::kF32) return {};
    return MakeError(ErrorCode::kUnsupported, "{} is of type {}; Vulkan kernels take float32 there",
                     e.program().value(id).name, Info(dtype).name);
}

}  // namespace

Status LowerTrainingExperts(Emitter& e, const program::Op& op, const program::ExpertMatMul& a) {
    if (op.inputs.size() == 4) {
        return MakeError(
            ErrorCode::kUnsupported,
            "experts with biases are not trained on Vulkan devices. Use --device cpu.");
    }
    WEFT_ASSIGN(const GemmMatrix y, MatrixOf(e, op.outputs[0]));
    return EmitSlotProduct(
        e, {GemmForm::kNT, op.inputs[0], op.inputs[1], op.inputs[2], a.first_expert}, y);
}

Status LowerTrainingExperts(Emitter& e, const program::Op& op, const program::ExpertSum& a) {
    if (a.bias) {
        return MakeError(
            ErrorCode::kUnsupported,
            "experts with biases are not trained on Vulkan devices. Use --device cpu.");
    }
    SlotSum sum{op.inputs[1],   op.outputs[0],
                op.inputs[2],   a.base ? op.inputs.back() : program::kNoValue,
                a.first_expert, ExpertsOf(e, op.inputs[3])};
    WEFT_TRY(CheckFloat(e, sum.weights));
    if (a.base) WEFT_TRY(CheckFloat(e, sum.base));
    WEFT_ASSIGN(
        const GemmMatrix products,
        EmitSlotProducts(e, {GemmForm::kNT, op.inputs[0], sum.ids, op.inputs[3], a.first_expert},
                         e.Cols(sum.y)));
    return EmitSlotSum(e, sum, products.All());
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertMatMulGradInput& a) {
    const ValueId dx = op.outputs[0];
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
    WEFT_TRY(CheckFloat(e, op.inputs[3]));
    return EmitSlotGradient(
        e, {op.inputs[0], op.inputs[1], op.inputs[2], op.inputs[3], op.outputs[0], a.first_expert});
}

Status Lower(Emitter& e, const program::Op& op, const program::ExpertSumGradInput& a) {
    const ValueId x = op.inputs[1], ids = op.inputs[2], weights = op.inputs[3];
    const ValueId dx = op.outputs[0], dweights = op.outputs[1];
    WEFT_TRY(CheckFloat(e, weights));
    WEFT_TRY(CheckFloat(e, dweights));
    WEFT_ASSIGN(
        const GemmMatrix products,
        EmitSlotProducts(e, {GemmForm::kNN, op.inputs[0], ids, op.inputs[4], a.first_expert},
                         e.Cols(dx)));
    DotArgs args;
    args.products = products.address;
    args.x = e.Address(x);
    args.ids = e.Address(ids);
    args.weights = e.Address(weights);
    args.dx = e.Address(dx);
    args.dweights = e.Address(dweights);
    args.cols = static_cast<uint32_t>(products.cols);
    args.slots = static_cast<uint32_t>(products.rows);
    args.first_expert = static_cast<uint32_t>(a.first_expert);
    args.experts = static_cast<uint32_t>(ExpertsOf(e, op.inputs[4]));
    WEFT_ASSIGN(const uint32_t x_type, ElementType(e.program().value(x).dtype));
    WEFT_ASSIGN(const uint32_t dx_type, ElementType(e.program().value(dx).dtype));
    constexpr int64_t kMostDotGroups = 65535;
    return e.Run("expert_dot", {GroupSize(e.gpu()), x_type, dx_type}, args,
                 {std::min(products.rows, kMostDotGroups), 1, 1},
                 {products.All(), e.All(x), e.All(ids), e.All(weights)},
                 {e.All(dx), e.All(dweights)}, PinnedSubgroup(e.gpu()));
}

}  // namespace weft::backend::vulkan
