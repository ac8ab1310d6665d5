// Operands of matrix products, for lower_products.cc, lower_experts.cc and lower_adapters.cc.
#pragma once

#include "backend/cpu/lowering.h"
#include "kernels/experts.h"

namespace weft::backend {

// Rows [begin, begin + count) of a weight as products of training read them: rows of a block type
// are widened to scratch memory. chosen: begin[m] and begin[m + 1] of the expert whose matrix this
// is (kernels/experts.h); the rows are not widened if no row of the step chose the expert.
Result<RowMajor> Widened(Lowering& l, ValueId weight, int64_t begin, int64_t count,
                         const OperandRegion* chosen = nullptr);

// x in the format `as`, prepared once for consecutive products that read x. heads: parts of x's
// rows that are prepared as rows of their own.
Result<OperandRegion> Prepare(Lowering& l, ValueId x, kernels::ActivationFormat as, int64_t heads);

// Adds the left operand of a product of inference: x, or the prepared x.
Status ReadsLeft(Lowering& l, const Op& op, auto& call, int64_t heads = 1) {
    const kernels::ActivationFormat as =
        l.kernels.activation_format(l.TypeOf(program::WeightOf(op)));
    if (as == kernels::ActivationFormat::kNone) {
        call.Reads(call.x, op.inputs[0]);
    } else {
        WEFT_ASSIGN(const OperandRegion prepared, Prepare(l, op.inputs[0], as, heads));
        call.Reads(call.quantized, prepared);
    }
    return {};
}

// Whether y is a sum over columns that no all-reduce follows. Such a float64 sum is rounded after
// its adapters, as several ranks round it after the all-reduce.
bool IsRoundedLate(const Lowering& l, ValueId y);
OperandRegion Unrounded(Lowering& l, ValueId y);

// Makes the plan for `count` experts of this rank, unless it is the current one: ops that share ids
// follow one another.
Status Plan(Lowering& l, const Op& op, ValueId ids, int64_t first, int64_t count);
OperandRegion PlacesOfPlan(Lowering& l);  // ExpertPlan::place

void OwnsGroupScratch(Lowering& l, auto& call) {
    call.Owns(call.scratch, call.scratch_bytes,
              kernels::GroupScratchBytes(l.kernels, call.weight.cols));
}

}  // namespace weft::backend
