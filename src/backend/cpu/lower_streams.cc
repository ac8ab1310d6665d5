// Lowers hyper-connections, and the ops of Gemma 3n and LongCat-Flash.
#include "backend/cpu/lowering.h"
#include "kernels/streams.h"

namespace weft::backend {

Status Lower(Lowering& l, const Op&, const program::StreamWeights& a) {
    KernelCall<kernels::StreamWeights> call(l);
    call.Operands(call.logits, call.base, call.scale, call.y);
    call.streams = a.streams;
    call.iterations = a.iterations;
    call.eps = a.eps;
    call.magnitude = a.magnitude;
    return call.PushRows();
}

Status Lower(Lowering& l, const Op& op, const program::MergeStreams& a) {
    KernelCall<kernels::MergeStreams> call(l);
    call.Operands(call.x, call.weights, call.y);
    call.streams = a.streams;
    call.weight_cols = l.Cols(op.inputs[1]);
    return call.PushRows();
}

Status Lower(Lowering& l, const Op& op, const program::MixStreams& a) {
    KernelCall<kernels::MixStreams> call(l);
    if (op.inputs.size() > 1) {
        call.Operands(call.x, call.weights, call.update, call.y);
        call.weight_cols = l.Cols(op.inputs[1]);
    } else {
        call.Operands(call.update, call.y);
    }
    call.streams = a.streams;
    return call.PushRows(op.inputs.back());
}

// ---- Gemma 3n -----------------------------------------------------------------------------------

Status Lower(Lowering& l, const Op&, const program::AltUpWeights& a) {
    KernelCall<kernels::AltUpWeights> call(l);
    call.Operands(call.coefs, call.y);
    call.streams = a.streams;
    call.corrects = a.corrects;
    return call.PushRows();
}

Status Lower(Lowering& l, const Op& op, const program::MatchStreams&) {
    KernelCall<kernels::MatchStreams> call(l);
    call.Operands(call.x, call.target, call.y);
    call.target_cols = l.Cols(op.inputs[1]);
    return call.PushRows();
}

Status Lower(Lowering& l, const Op& op, const program::ScaleColumns&) {
    KernelCall<kernels::ScaleColumns> call(l);
    call.Operands(call.x, call.weight, call.y);
    call.x_cols = l.Cols(op.inputs[0]);
    return call.PushRows();
}

Status Lower(Lowering& l, const Op& op, const program::RowMoments&) {
    KernelCall<kernels::RowMoments> call(l);
    const ValueId y = op.outputs[0];
    call.Reads(call.x, op.inputs[0]);
    l.IsWide(y) ? call.Writes(call.wide, y) : call.Writes(call.y, y);
    call.x_cols = l.Cols(op.inputs[0]);
    return call.PushRows();
}

Status Lower(Lowering& l, const Op&, const program::Sparsify& a) {
    KernelCall<kernels::Sparsify> call(l);
    call.Operands(call.x, call.moments, call.y);
    call.whole = a.whole;
    call.deviations = a.deviations;
    return call.PushRows();
}

// ---- LongCat-Flash ------------------------------------------------------------------------------

Status Lower(Lowering& l, const Op& op, const program::IdentityExperts& a) {
    KernelCall<kernels::IdentityExperts> call(l);
    call.Operands(call.x, call.ids, call.weights, call.y);
    call.used = l.Cols(op.inputs[1]);
    call.first = a.first;
    return call.PushRows();
}

}  // namespace weft::backend
