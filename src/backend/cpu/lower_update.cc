// Lowers the update of training. Calls point at runs and ranges in the Program, which outlives
// them.
#include "backend/cpu/lower_training.h"

namespace weft::backend {

using program::Op;

namespace {

// Address and length of an op's list, for the arguments of a call.
template <typename T>
void PointAt(const std::vector<T>& list, const T*& first, int64_t& count) {
    first = list.data();
    count = static_cast<int64_t>(list.size());
}

}  // namespace

// copy: the index of the input for the copy, if there are that many inputs.
template <typename Args>
void TrainingLowerer::OwnPartOf(CallOf<Args>& call, const Op& op, size_t copy) {
    dense::UpdatedPart& own = call.args.own;
    call.Reads(own.g, Of(op.inputs[0]));
    own.g_type = ElementOf(TypeOf(op.inputs[0]));
    call.Changes(own.p, Of(op.outputs[0]));
    if (copy >= op.inputs.size()) return;
    call.Changes(own.copy, Of(op.inputs[copy]));
    own.copy_type = ElementOf(TypeOf(op.inputs[copy]));
}

template <typename Args>
void TrainingLowerer::ReadsNumbers(CallOf<Args>& call) {
    call.args.numbers = &buffers_.numbers();
}

// Sums blocks and then their sums, for any number of threads.
template <auto kBlocks, auto kAdd, typename Args>
Status TrainingLowerer::LowerSquares(const Op& op, const program::AddSquares& a) {
    const auto make = [&] {
        CallOf<Args> call;
        PointAt(a.ranges, call.args.ranges, call.args.range_count);
        call.args.type = ElementOf(TypeOf(op.inputs[0]));
        return call;
    };
    CallOf<Args> blocks = make(), add = make();
    const OperandRegion sums =
        ScratchBytes("squares", dense::SquaresBlocks(a.ranges.data(), add.args.range_count) *
                                    static_cast<int64_t>(sizeof(*add.args.blocks)));
    blocks.Reads(blocks.args.x, Of(op.inputs[0]));
    blocks.Writes(blocks.args.blocks, sums);
    WEFT_TRY(Push<kBlocks>(blocks));
    add.Reads(add.args.blocks, sums);
    add.Changes(add.args.sum, Of(op.outputs[0]));
    return Push<kAdd>(add);
}

// In float64; in pairs of float32 if devices of other ranks lack float64.
Status TrainingLowerer::Lower(const Op& op, const program::AddSquares& a) {
    if (TypeOf(op.outputs[0]) == DType::kF64) {
        return LowerSquares<dense::BlockSquares, dense::AddSquares, dense::SquaresArgs>(op, a);
    }
    return LowerSquares<dense::BlockPairSquares, dense::AddPairSquares, dense::PairSquaresArgs>(op,
                                                                                                a);
}

namespace {

template <typename Args>
void SetAdam(Args& args, const program::AdamUpdate& a) {
    PointAt(a.runs, args.runs, args.run_count);
    args.beta1 = a.beta1;
    args.beta2 = a.beta2;
    args.eps = a.eps;
    args.l2 = a.l2;
    args.decay = a.decay;
}

}  // namespace

Status TrainingLowerer::Lower(const Op& op, const program::AdamUpdate& a) {
    CallOf<dense::AdamRunsArgs> call;
    SetAdam(call.args, a);
    ReadsNumbers(call);
    OwnPartOf(call, op, 4);
    call.Changes(call.args.m, Of(op.inputs[2]));
    call.Changes(call.args.v, Of(op.inputs[3]));
    return Push<dense::AdamRuns>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::Adam8bitUpdate& a) {
    CallOf<dense::Adam8bitRunsArgs> call;
    SetAdam(call.args, a.adam);
    ReadsNumbers(call);
    OwnPartOf(call, op, 6);
    call.Changes(call.args.m, Of(op.inputs[2]));
    call.Changes(call.args.v, Of(op.inputs[3]));
    call.Changes(call.args.m_scales, Of(op.inputs[4]));
    call.Changes(call.args.v_scales, Of(op.inputs[5]));
    return Push<dense::Adam8bitRuns>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::SgdUpdate& a) {
    CallOf<dense::SgdRunsArgs> call;
    PointAt(a.runs, call.args.runs, call.args.run_count);
    ReadsNumbers(call);
    call.args.momentum = a.momentum;
    call.args.dampening = a.dampening;
    call.args.l2 = a.l2;
    call.args.nesterov = a.nesterov;
    const bool kept = a.momentum > 0;
    OwnPartOf(call, op, kept ? 3 : 2);
    if (kept) call.Changes(call.args.b, Of(op.inputs[2]));
    return Push<dense::SgdRuns>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::AdafactorSums& a) {
    CallOf<dense::AdafactorSumsArgs> call;
    dense::AdafactorSumsArgs& args = call.args;
    PointAt(a.runs, args.runs, args.run_count);
    ReadsNumbers(call);
    call.Reads(args.g, Of(op.inputs[0]));
    args.g_type = ElementOf(TypeOf(op.inputs[0]));
    call.Reads(args.p, Of(op.inputs[1]));
    args.moments = a.moments;
    args.sizes = a.sizes;
    call.Changes(args.sums, Of(op.outputs[0]));
    return Push<dense::AdafactorSums>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::AdafactorMoments& a) {
    CallOf<dense::AdafactorMomentsArgs> call;
    dense::AdafactorMomentsArgs& args = call.args;
    PointAt(a.tensors, args.tensors, args.tensor_count);
    ReadsNumbers(call);
    args.decay_rate = a.decay_rate;
    args.eps_square = a.eps_square;
    call.Reads(args.sums, Of(op.inputs[0]));
    call.Changes(args.moments, Of(op.outputs[0]));
    call.Changes(args.inverse, Of(op.outputs[1]));
    return Push<dense::AdafactorMoments>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::AdafactorSizes& a) {
    const auto make = [&] {
        CallOf<dense::AdafactorSizesArgs> call;
        PointAt(a.runs, call.args.runs, call.args.run_count);
        call.args.g_type = ElementOf(TypeOf(op.inputs[0]));
        ReadsNumbers(call);
        return call;
    };
    CallOf<dense::AdafactorSizesArgs> rows = make(), add = make();
    const OperandRegion sums =
        ScratchBytes("squares", dense::AdafactorRows(a.runs.data(), add.args.run_count) * kDouble);
    rows.Reads(rows.args.g, Of(op.inputs[0]));
    rows.Reads(rows.args.inverse, Of(op.inputs[1]));
    rows.Writes(rows.args.rows, sums);
    WEFT_TRY(Push<dense::AdafactorRowSizes>(rows));
    add.Reads(add.args.rows, sums);
    add.Changes(add.args.squares, Of(op.outputs[0]));
    return Push<dense::AdafactorAddSizes>(add);
}

Status TrainingLowerer::Lower(const Op& op, const program::AdafactorUpdate& a) {
    CallOf<dense::AdafactorUpdateArgs> call;
    dense::AdafactorUpdateArgs& args = call.args;
    PointAt(a.runs, args.runs, args.run_count);
    ReadsNumbers(call);
    OwnPartOf(call, op, 5);
    call.Reads(args.inverse, Of(op.inputs[1]));
    call.Reads(args.sums, Of(op.inputs[2]));
    call.Reads(args.squares, Of(op.inputs[3]));
    args.moments = a.moments;
    args.eps_scale = a.eps_scale;
    args.clip_threshold = a.clip_threshold;
    args.decay = a.decay;
    args.scale_parameter = a.scale_parameter;
    args.relative_step = a.relative_step;
    return Push<dense::AdafactorUpdate>(call);
}

}  // namespace weft::backend
