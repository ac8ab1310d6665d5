// Lowers hyper-connections.
#include "backend/cpu/lowering.h"
#include "kernels/streams.h"

namespace weft::backend {

Status Lower(Lowering& l, const Op&, const program::StreamWeights& a) {
    KernelCall<kernels::StreamWeights> call(l);
    call.Operands(call.logits, call.base, call.scale, call.y);
    call.streams = a.streams;
    call.iterations = a.iterations;
    call.eps = a.eps;
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
    } else {
        call.Operands(call.update, call.y);
    }
    call.streams = a.streams;
    return call.PushRows(op.inputs.back());
}

}  // namespace weft::backend
