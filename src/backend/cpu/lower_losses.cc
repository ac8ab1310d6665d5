// Lowers losses.
#include "backend/cpu/lowering.h"

namespace weft::backend {
namespace {

constexpr const char* kExpanded = "ExpandLoss (program/loss.h) replaces it by other ops";

}  // namespace

Status Lower(Lowering& l, const Op&, const program::LinearCrossEntropy&) {
    return l.Unsupported(kExpanded);
}
Status Lower(Lowering& l, const Op&, const program::LinearCrossEntropyGrad&) {
    return l.Unsupported(kExpanded);
}

Status Lower(Lowering& l, const Op& op, const program::SoftmaxStats& a) {
    KernelCall<&Kernels::softmax_stats> call(l);
    call.Operands(call.logits, call.targets, call.stats);
    call.first = a.first_row;
    call.sums = a.sums;
    return call.PushRows(op.inputs[0]);
}

Status Lower(Lowering& l, const Op& op, const program::CrossEntropy& a) {
    KernelCall<dense::CrossEntropy> call(l);
    call.Operands(call.stats, call.targets, call.losses, call.hits);
    call.terms = a.terms;
    call.ranks = l.Cols(op.inputs[0]) / a.terms.stats();
    call.Rows(call.rows, op.inputs[0]);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::CrossEntropyGrad& a) {
    KernelCall<&Kernels::cross_entropy_grad> call(l);
    call.Operands(call.dloss, call.stats, call.targets, call.logits);
    call.terms = a.terms;
    call.ranks = l.Cols(op.inputs[1]) / a.terms.stats();
    call.first = a.first_row;
    return call.PushRows();
}

}  // namespace weft::backend
