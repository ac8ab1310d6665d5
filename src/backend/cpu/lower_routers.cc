// Lowers the choice of experts, gates of rows, and the statistics of routers.
#include "backend/cpu/lowering.h"
#include "kernels/dense/experts.h"

namespace weft::backend {

Status Lower(Lowering& l, const Op& op, const program::Route& a) {
    if (l.trains() && a.by_token) return l.Unsupported("experts by token have no gradient");
    KernelCall<kernels::Route> call(l);
    call.Reads(call.logits, op.inputs[0]);
    if (a.by_token) {
        call.Reads(call.tokens, op.inputs[1]);
        call.Reads(call.table, op.inputs[2]);
        call.vocab = l.ShapeOf(op.inputs[2])[0];
    } else {
        if (a.factors) call.Reads(call.factors, op.inputs.back());
        if (op.inputs.size() == (a.factors ? 3u : 2u)) call.Reads(call.bias, op.inputs[1]);
    }
    call.experts = l.Cols(op.inputs[0]);
    call.used = l.Cols(op.outputs[0]);
    call.score = static_cast<kernels::RouterScore>(a.score);
    call.jitter = a.jitter;
    call.groups = a.groups;
    call.groups_used = a.groups_used;
    call.group_best = a.group_best;
    call.renormalise = a.renormalise;
    call.scale = a.scale;
    call.Writes(call.ids, op.outputs[0]);
    call.Writes(call.weights, op.outputs[1]);
    if (call.experts > kernels::kMostExperts) {
        return l.Unsupported(fmt::format("{} experts; at most {} are supported", call.experts,
                                         kernels::kMostExperts));
    }
    call.Rows(call.rows, op.outputs[0]);
    return call.Push();
}

namespace {

void FillRouteGrad(Lowering& l, const Op& op, const program::Route& a, auto& call) {
    call.Operands(call.dweights, call.logits, call.ids);
    call.experts = l.Cols(op.inputs[1]);
    call.used = l.Cols(op.inputs[0]);
    call.sigmoid = a.score == program::GateScore::kSigmoid;
    call.renormalise = a.renormalise;
    call.scale = a.scale;
    call.Rows(call.rows, op.inputs[0]);
}

}  // namespace

Status Lower(Lowering& l, const Op& op, const program::RouteGrad& a) {
    KernelCall<dense::RouteGrad> call(l);
    FillRouteGrad(l, op, a.forward, call);
    if (a.forward.factors) call.Reads(call.factors, op.inputs[3]);
    call.Writes(call.dlogits, op.outputs[0]);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::RouteFactorsGrad& a) {
    KernelCall<dense::RouteFactorsGrad> call(l);
    FillRouteGrad(l, op, a.forward, call);
    call.Changes(call.dfactors, op.outputs[0]);
    return call.Push();
}

// The columns of each gate are one row of the kernel.
Status Lower(Lowering& l, const Op& op, const program::GateRows& a) {
    const int64_t gates = l.Cols(op.inputs[1]);
    KernelCall<dense::GateRows> call(l);
    call.Operands(call.x, call.gate, call.y);
    call.cols = call.x.stride = call.y.stride = l.Cols(op.outputs[0]) / gates;
    call.softplus = a.gate == program::RowGate::kSoftplus;
    call.product = a.gate == program::RowGate::kProduct;
    call.Rows(call.rows, op.outputs[0], gates);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::GateRowsGrad& a) {
    const int64_t gates = l.Cols(op.inputs[2]);
    KernelCall<dense::GateRowsGrad> call(l);
    call.Operands(call.dy, call.x, call.gate, call.dx, call.dgate);
    call.cols = call.dy.stride = call.x.stride = call.dx.stride = l.Cols(op.inputs[0]) / gates;
    call.softplus = a.gate == program::RowGate::kSoftplus;
    call.product = a.gate == program::RowGate::kProduct;
    call.Rows(call.rows, op.inputs[0], gates);
    call.Owns(call.scratch, call.scratch_bytes, dense::GateRowsGradScratchBytes(call));
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::RouterLoad&) {
    const ValueId logits = op.inputs[0], ids = op.inputs[1];
    const int64_t experts = l.Cols(logits);
    const OperandRegion scores = l.ScratchBytes("scores", l.MostRows(logits) * experts * kFloat);
    KernelCall<dense::RouterScores> make(l);
    make.Reads(make.logits, logits);
    make.experts = experts;
    make.Writes(make.scores, scores);
    make.Rows(make.rows, logits);
    WEFT_TRY(make.Push());
    KernelCall<dense::RouterLoad> call(l);
    call.Reads(call.scores, scores);
    call.Reads(call.ids, ids);
    call.experts = experts;
    call.used = l.Cols(ids);
    if (op.inputs.size() == 3) call.Reads(call.before, op.inputs[2]);
    call.Writes(call.load, op.outputs[0]);
    call.Rows(call.rows, logits);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::RouterLoadGrad&) {
    KernelCall<dense::RouterLoadGrad> call(l);
    call.Operands(call.dload, call.logits, call.dlogits);
    call.experts = l.Cols(op.inputs[1]);
    call.Rows(call.rows, op.inputs[1]);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::LoadBalance& a) {
    KernelCall<dense::LoadBalance> call(l);
    call.Operands(call.load, call.y);
    call.experts = l.Cols(op.inputs[0]);
    call.used = a.used;
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::LoadBalanceGrad& a) {
    KernelCall<dense::LoadBalanceGrad> call(l);
    call.Operands(call.dy, call.load, call.dload);
    call.experts = l.Cols(op.inputs[1]);
    call.used = a.forward.used;
    return call.Push();
}

}  // namespace weft::backend
