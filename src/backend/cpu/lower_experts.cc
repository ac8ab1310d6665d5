// Lowers the products of experts and their gradients. Rows of a value [T, K, n] are sorted by
// expert, so an expert's rows form one matrix. Inference multiplies packed matrices
// (kernels/experts.h); in training (kernels/dense/experts.h), rows after the rows of this rank's
// experts are zeros.
#include "backend/cpu/products.h"
#include "kernels/dense/experts.h"

namespace weft::backend {
namespace {

// ---- The plan -----------------------------------------------------------------------------------

// Number of slots of the current plan.
int64_t PlanSlots(const Lowering& l) {
    return l.MostRows(l.prepared.planned_ids) * l.plan.used;
}

// Whether a later call needs the places of slots.
bool AdaptsExperts(const Lowering& l) {
    return l.adapts && std::ranges::any_of(l.program.ops, [](const Op& op) {
               return op.kind() == program::OpKind::kAdaptExperts ||
                      op.kind() == program::OpKind::kAdaptExpertSum;
           });
}

// Adds the current plan.
void AccessPlan(Lowering& l, auto& call, MemoryAccess access) {
    kernels::ExpertPlan& plan = call.plan;
    const auto add = [&](int32_t*& address, const OperandRegion& region) {
        access == MemoryAccess::kRead ? call.Reads(address, region) : call.Writes(address, region);
    };
    add(plan.begin, l.PlanBegin());
    add(plan.slots, l.ScratchBytes("slots", PlanSlots(l) * kInt));
    if (l.trains() || AdaptsExperts(l)) add(plan.place, PlacesOfPlan(l));
}

}  // namespace

OperandRegion PlacesOfPlan(Lowering& l) {
    return l.ScratchBytes("places", PlanSlots(l) * kInt);
}

Status Plan(Lowering& l, const Op& op, ValueId ids, int64_t first, int64_t count) {
    kernels::PlanExpertsArgs& current = l.plan;
    const bool at_hand =
        l.prepared.planned_ids == ids && current.first_expert == first && current.count == count;
    if (at_hand) return {};
    if (!l.trains() && l.IsSlots(op.inputs[0])) {
        return l.Unsupported("its input rows are sorted by another choice of experts than its own");
    }
    l.prepared.planned_ids = ids;
    KernelCall<kernels::PlanExperts> call(l);
    call.used = l.Cols(ids);
    call.first_expert = first;
    call.count = count;
    current = call;
    call.Reads(call.ids, ids);
    AccessPlan(l, call, MemoryAccess::kWrite);
    call.Rows(call.rows, ids);
    return call.Push();
}

namespace {

// Brings the experts of the current plan from the drive, before the op that reads them.
Status Bring(Lowering& l, ValueId ids, ValueId stack) {
    OpCall<BringArgs> call(l);
    call.built.kind = CallKind::kBring;
    if (std::exchange(l.prepared.brought_ids, ids) != ids) call.ids = ids;
    call.weight = stack;
    call.Changes(call.begin, l.PlanBegin());  // ops that read the plan wait
    call.Rows(call.rows, ids);
    return call.Push();
}

// The plan for the experts whose matrices are in `stack`.
Status PlanStack(Lowering& l, const Op& op, ValueId ids, ValueId stack, int64_t first) {
    WEFT_TRY(Plan(l, op, ids, first, l.ShapeOf(stack)[0]));
    return l.buffers.IsOnDrive(stack) ? Bring(l, ids, stack) : Status();
}

// ---- Calls of training --------------------------------------------------------------------------

RowMajor ScratchSlots(Lowering& l, const std::string& name, DType dtype, int64_t cols) {
    return {dtype, cols, l.ScratchBytes(name, RowBytes(dtype, PlanSlots(l) * cols))};
}

// Row i of y is the row of x for slot i's token, times the slot's weight if there are weights.
Status PushGather(Lowering& l, ValueId x, ValueId weights, const auto& y) {
    KernelCall<dense::GatherRows> call(l);
    AccessPlan(l, call, MemoryAccess::kRead);
    call.experts = l.plan.count;
    call.used = l.plan.used;
    call.Reads(call.x, x);
    if (weights != program::kNoValue) call.Reads(call.weights, weights);
    call.cols = l.Cols(x);
    call.Writes(call.y, y);
    return call.Push();
}

Result<RowMajor> Gather(Lowering& l, ValueId x, ValueId weights = program::kNoValue) {
    if (l.IsSlots(x)) return l.RowMajorOf(x);  // has a row per slot already
    const RowMajor to = ScratchSlots(l, "gathered", l.TypeOf(x), l.Cols(x));
    WEFT_TRY(PushGather(l, x, weights, to));
    return to;
}

// The matrices of experts from `first` on: one matrix if the stack has a block type, else all.
Result<RowMajor> MatricesOf(Lowering& l, ValueId stack, int64_t first) {
    OperandRegion chosen = l.PlanBegin();
    chosen.data += first * kInt;
    chosen.bytes -= first * kInt;
    const int64_t rows = l.ShapeOf(stack)[1];
    return Widened(l, stack, first * rows, rows, &chosen);
}

// The products of each expert's rows of `a` with its matrix W in `stack`. kNT, kNN: `other` is the
// result. kTN: `other` is the second factor, and the product is added to W.
Status PushExpertGemm(Lowering& l, dense::ExpertProduct product, ValueId stack, const RowMajor& a,
                      const RowMajor& other) {
    const program::Shape& shape = l.ShapeOf(stack);
    const int64_t step = Info(l.TypeOf(stack)).quantized ? 1 : shape[0];
    for (int64_t first = 0; first < shape[0]; first += step) {
        KernelCall<dense::ExpertGemm> call(l);
        call.product = product;
        call.compute = l.compute();
        call.first = first;
        call.last = first + step;
        call.n = shape[1];
        call.k = shape[2];
        call.Reads(call.begin, l.PlanBegin());
        call.Reads(call.a, a);
        if (product == dense::ExpertProduct::kTN) {
            call.Reads(call.b, other);
            call.Changes(call.dw, stack);
        } else {
            WEFT_ASSIGN(const RowMajor w, MatricesOf(l, stack, first));
            call.Reads(call.w, w);
            call.Writes(call.c, other);
        }
        call.Owns(call.scratch, call.scratch_bytes,
                  dense::ExpertGemmScratchBytes(l.kernels, call, PlanSlots(l)));
        WEFT_TRY(call.Push());
    }
    return {};
}

// Products in scratch memory, in float32.
Result<RowMajor> ScratchProduct(Lowering& l, dense::ExpertProduct product, ValueId stack,
                                const RowMajor& a) {
    const int64_t cols = l.ShapeOf(stack)[product == dense::ExpertProduct::kNT ? 1 : 2];
    const RowMajor sums = ScratchSlots(l, "sums", DType::kF32, cols);
    WEFT_TRY(PushExpertGemm(l, product, stack, a, sums));
    return sums;
}

Status PushClearRest(Lowering& l, ValueId y) {
    KernelCall<dense::ClearRest> call(l);
    AccessPlan(l, call, MemoryAccess::kRead);
    call.experts = l.plan.count;
    call.used = l.plan.used;
    call.cols = l.Cols(y);
    call.Writes(call.y, y);
    call.Rows(call.tokens, l.prepared.planned_ids);
    return call.Push();
}

Status PushCombine(Lowering& l, const RowMajor& sums, ValueId weights, ValueId base, ValueId y) {
    KernelCall<dense::Combine> call(l);
    AccessPlan(l, call, MemoryAccess::kRead);
    call.used = l.plan.used;
    call.Reads(call.x, sums.region);
    if (weights != program::kNoValue) call.Reads(call.weights, weights);
    if (base != program::kNoValue) call.Reads(call.base, base);
    call.cols = l.Cols(y);
    call.Writes(call.y, y);
    call.Rows(call.tokens, l.prepared.planned_ids);
    call.Owns(call.scratch, call.scratch_bytes, dense::CombineScratchBytes(call));
    return call.Push();
}

// ---- Calls of inference -------------------------------------------------------------------------

// The experts' matrices, the plan of their rows, and x.
Status ReadsExperts(Lowering& l, const Op& op, auto& call) {
    call.weight = l.buffers.stack(program::WeightOf(op));
    AccessPlan(l, call, MemoryAccess::kRead);
    call.used = l.plan.used;
    call.x_stride = call.weight.cols;
    WEFT_TRY(ReadsLeft(l, op, call));
    OwnsGroupScratch(l, call);
    return {};
}

Status PackedProduct(Lowering& l, const Op& op) {
    KernelCall<kernels::ExpertMatMul> call(l);
    WEFT_TRY(ReadsExperts(l, op, call));
    if (op.inputs.size() == 4) call.Reads(call.bias, op.inputs[3]);
    call.by_token = !l.IsSlots(op.inputs[0]);
    call.Writes(call.y, op.outputs[0]);
    call.y_stride = l.Cols(op.outputs[0]);
    return call.Push();
}

Status PackedSum(Lowering& l, const Op& op, const program::ExpertSum& a) {
    KernelCall<kernels::ExpertSum> call(l);
    const ValueId y = op.outputs[0];
    WEFT_TRY(ReadsExperts(l, op, call));
    if (a.bias) call.Reads(call.bias, op.inputs[4]);
    call.Reads(call.weights, op.inputs[2]);
    call.segment_cols = a.segment_cols;
    call.x_used = l.used_columns[op.inputs[0]];
    if (a.base) {
        const ValueId base = op.inputs.back();
        l.IsWide(base) ? call.Reads(call.wide_base, base) : call.Reads(call.base, base);
    }
    if (l.IsWide(y)) {
        call.Writes(call.wide, y);
    } else if (IsRoundedLate(l, y)) {
        call.Writes(call.wide, Unrounded(l, y));
    } else {
        const int64_t row_bytes = l.Cols(y) * kDouble;
        call.Writes(call.wide, l.ScratchRows("wide", row_bytes, l.MostRows(y)));
        call.Writes(call.y, y);
    }
    call.Rows(call.rows, y);
    return call.Push();
}

}  // namespace

Status Lower(Lowering& l, const Op& op, const program::WeighRows& a) {
    WEFT_TRY(Plan(l, op, op.inputs[1], a.first_expert, a.experts));
    if (l.trains()) {
        WEFT_TRY(PushGather(l, op.inputs[0], op.inputs[2], op.outputs[0]));
        KernelCall<dense::Ones> ones(l);
        ones.Writes(ones.y, op.outputs[1]);
        WEFT_TRY(ones.PushRows(op.outputs[1]));
        return PushClearRest(l, op.outputs[0]);
    }
    KernelCall<kernels::WeighRows> call(l);
    call.Reads(call.x, op.inputs[0]);
    call.Reads(call.weights, op.inputs[2]);
    AccessPlan(l, call, MemoryAccess::kRead);
    call.cols = l.Cols(op.inputs[0]);
    call.used = l.plan.used;
    call.experts = l.plan.count;
    call.Writes(call.y, op.outputs[0]);
    call.Writes(call.rest, op.outputs[1]);
    call.Rows(call.rows, op.outputs[1]);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::ExpertMatMul& a) {
    WEFT_TRY(PlanStack(l, op, op.inputs[1], op.inputs[2], a.first_expert));
    if (!l.trains()) return PackedProduct(l, op);
    if (op.inputs.size() == 4) return l.Unsupported("a bias is an op of its own (train/graph.cc)");
    const ValueId y = op.outputs[0];
    WEFT_ASSIGN(const RowMajor x, Gather(l, op.inputs[0]));
    WEFT_TRY(PushExpertGemm(l, dense::ExpertProduct::kNT, op.inputs[2], x, l.RowMajorOf(y)));
    return PushClearRest(l, y);
}

Status Lower(Lowering& l, const Op& op, const program::ExpertMatMulGradInput& a) {
    const ValueId stack = op.inputs[2];
    WEFT_TRY(PlanStack(l, op, op.inputs[1], stack, a.first_expert));
    const RowMajor dy = l.RowMajorOf(op.inputs[0]);
    const ValueId dx = op.outputs[0];
    if (l.IsSlots(dx)) {
        WEFT_TRY(PushExpertGemm(l, dense::ExpertProduct::kNN, stack, dy, l.RowMajorOf(dx)));
        return PushClearRest(l, dx);
    }
    WEFT_ASSIGN(const RowMajor sums, ScratchProduct(l, dense::ExpertProduct::kNN, stack, dy));
    return PushCombine(l, sums, program::kNoValue, program::kNoValue, dx);
}

Status Lower(Lowering& l, const Op& op, const program::ExpertMatMulGradWeight& a) {
    const ValueId dw = op.outputs[0];
    WEFT_TRY(PlanStack(l, op, op.inputs[2], dw, a.first_expert));
    WEFT_ASSIGN(const RowMajor x, Gather(l, op.inputs[1]));
    return PushExpertGemm(l, dense::ExpertProduct::kTN, dw, l.RowMajorOf(op.inputs[0]), x);
}

Status Lower(Lowering& l, const Op& op, const program::ExpertSum& a) {
    WEFT_TRY(PlanStack(l, op, op.inputs[1], op.inputs[3], a.first_expert));
    if (!l.trains()) return PackedSum(l, op, a);
    if (a.bias) return l.Unsupported("a bias is an op of its own (train/graph.cc)");
    const RowMajor x = l.RowMajorOf(op.inputs[0]);
    WEFT_ASSIGN(const RowMajor sums, ScratchProduct(l, dense::ExpertProduct::kNT, op.inputs[3], x));
    return PushCombine(l, sums, op.inputs[2], a.base ? op.inputs.back() : program::kNoValue,
                       op.outputs[0]);
}

Status Lower(Lowering& l, const Op& op, const program::ExpertSumGradInput& a) {
    const ValueId ids = op.inputs[2], stack = op.inputs[4], dx = op.outputs[0];
    WEFT_TRY(PlanStack(l, op, ids, stack, a.first_expert));
    WEFT_ASSIGN(const RowMajor dy, Gather(l, op.inputs[0]));
    WEFT_ASSIGN(const RowMajor products, ScratchProduct(l, dense::ExpertProduct::kNN, stack, dy));
    KernelCall<dense::ExpertWeightGrad> call(l);
    AccessPlan(l, call, MemoryAccess::kRead);
    call.used = l.plan.used;
    call.Reads(call.products, products.region);
    call.Reads(call.x, op.inputs[1]);
    call.Reads(call.weights, op.inputs[3]);
    call.cols = products.cols;
    call.Writes(call.dx, dx);
    call.Writes(call.dweights, op.outputs[1]);
    call.Rows(call.tokens, ids);
    call.Owns(call.scratch, call.scratch_bytes, dense::ExpertWeightGradScratchBytes(call));
    WEFT_TRY(call.Push());
    return PushClearRest(l, dx);
}

Status Lower(Lowering& l, const Op& op, const program::ExpertSumGradWeight& a) {
    const ValueId x = op.inputs[1], dw = op.outputs[0];
    WEFT_TRY(PlanStack(l, op, op.inputs[2], dw, a.first_expert));
    WEFT_ASSIGN(const RowMajor dy, Gather(l, op.inputs[0], op.inputs[3]));
    return PushExpertGemm(l, dense::ExpertProduct::kTN, dw, dy, l.RowMajorOf(x));
}

Status Lower(Lowering& l, const Op& op, const program::WeighRowsGrad& a) {
    WEFT_TRY(Plan(l, op, op.inputs[2], a.forward.first_expert, a.forward.experts));
    KernelCall<dense::WeighRowsGrad> call(l);
    AccessPlan(l, call, MemoryAccess::kRead);
    call.used = l.plan.used;
    call.Reads(call.dy, op.inputs[0]);
    call.Reads(call.x, op.inputs[1]);
    call.Reads(call.weights, op.inputs[3]);
    call.Writes(call.dx, op.outputs[0]);
    call.Writes(call.dweights, op.outputs[1]);
    call.cols = l.Cols(op.inputs[1]);
    call.Rows(call.tokens, op.inputs[1]);
    call.Owns(call.scratch, call.scratch_bytes, dense::WeighRowsGradScratchBytes(call));
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::ExpertBias& a) {
    const ValueId ids = op.inputs[1], bias = op.inputs[2];
    WEFT_TRY(Plan(l, op, ids, a.first_expert, l.ShapeOf(bias)[0]));
    KernelCall<dense::ExpertBias> call(l);
    AccessPlan(l, call, MemoryAccess::kRead);
    call.experts = l.plan.count;
    call.used = l.plan.used;
    call.Reads(call.x, op.inputs[0]);
    call.Reads(call.bias, bias);
    call.cols = l.Cols(bias);
    call.Writes(call.y, op.outputs[0]);
    WEFT_TRY(call.Push());
    return PushClearRest(l, op.outputs[0]);
}

Status Lower(Lowering& l, const Op& op, const program::ExpertBiasGrad& a) {
    const ValueId ids = op.inputs[1], db = op.outputs[0];
    WEFT_TRY(Plan(l, op, ids, a.first_expert, l.ShapeOf(db)[0]));
    KernelCall<dense::ExpertBiasGrad> call(l);
    AccessPlan(l, call, MemoryAccess::kRead);
    call.experts = l.plan.count;
    call.used = l.plan.used;
    call.Reads(call.dy, op.inputs[0]);
    if (a.weighs) call.Reads(call.weights, op.inputs[2]);
    call.cols = l.Cols(db);
    call.Changes(call.db, db);
    call.Owns(call.scratch, call.scratch_bytes, dense::ExpertBiasGradScratchBytes(call));
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::ExpertBiasSum& a) {
    KernelCall<dense::ExpertBiasSum> call(l);
    call.Operands(call.base, call.ids, call.weights, call.bias, call.y);
    call.first_expert = a.first_expert;
    call.experts = l.ShapeOf(op.inputs[3])[0];
    call.used = l.Cols(op.inputs[1]);
    call.cols = l.Cols(op.outputs[0]);
    call.Rows(call.tokens, op.outputs[0]);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::ExpertBiasSumGrad& a) {
    KernelCall<dense::ExpertBiasSumGrad> call(l);
    call.Operands(call.dy, call.ids, call.bias, call.dweights);
    call.first_expert = a.first_expert;
    call.experts = l.ShapeOf(op.inputs[2])[0];
    call.used = l.Cols(op.inputs[1]);
    call.cols = l.Cols(op.inputs[0]);
    call.Rows(call.tokens, op.inputs[0]);
    return call.Push();
}

}  // namespace weft::backend
