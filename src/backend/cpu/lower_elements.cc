// Lowers ops that work element by element.
#include "backend/cpu/lowering.h"
#include "kernels/dense/gated.h"
#include "kernels/dense/heads.h"
#include "kernels/dense/lookup.h"
#include "kernels/ungated.h"

namespace weft::backend {
namespace {

Status CheckFloats(const Lowering& l, const Op& op) {
    const bool floats =
        l.TypeOf(op.inputs[0]) == DType::kF32 && l.TypeOf(op.outputs[0]) == DType::kF32;
    return floats ? Status() : l.Unsupported("supports float32 only");
}

}  // namespace

Status Lower(Lowering& l, const Op&, const program::Glu& a) {
    KernelCall<&Kernels::glu> call(l);
    call.Operands(call.gate, call.up, call.out);
    call.activation = a.activation;
    call.limit = a.limit;
    call.limits_gate = a.limits_gate;
    return call.PushRows();
}

Status Lower(Lowering& l, const Op& op, const program::GluGrad& a) {
    if (a.limit == 0 && a.activation != Activation::kClampedSilu) {
        KernelCall<&Kernels::glu_grad> call(l);
        call.Operands(call.dout, call.gate, call.up, call.dgate, call.dup);
        call.activation = a.activation;
        return call.PushRows(op.inputs[0]);
    }
    KernelCall<dense::LimitedGluGrad> call(l);
    dense::GluGradArgs& glu = call.glu;
    call.Operands(glu.dout, glu.gate, glu.up, glu.dgate, glu.dup);
    glu.activation = a.activation;
    glu.cols = l.Cols(op.inputs[0]);
    call.Rows(glu.rows, op.inputs[0]);
    call.limit = a.limit;
    call.limits_gate = a.limits_gate;
    call.Owns(call.scratch, call.scratch_bytes, dense::LimitedGluGradScratchBytes(call));
    return call.Push();
}

Status Lower(Lowering& l, const Op&, const program::Activate& a) {
    KernelCall<kernels::Activate> call(l);
    call.Operands(call.x, call.y);
    call.kind = a.kind;
    call.xielu = a.xielu;
    return call.PushRows();
}

Status Lower(Lowering& l, const Op&, const program::ActivateGrad& a) {
    KernelCall<kernels::ActivateGrad> call(l);
    call.Operands(call.dy, call.x, call.dx);
    call.kind = a.kind;
    call.xielu = a.xielu;
    return call.PushRows();
}

// The kernel sees all rows as one row, whose elements are divided over the threads.
Status Lower(Lowering& l, const Op& op, const program::Add&) {
    KernelCall<&Kernels::add> call(l);
    call.Operands(call.a, call.b, call.y);
    call.rows = 1;
    call.Rows(call.cols, op.outputs[0], l.Cols(op.outputs[0]));
    call.built.light = true;
    return call.Push();
}

Status Lower(Lowering& l, const Op&, const program::Scale& a) {
    KernelCall<&Kernels::scale> call(l);
    call.Operands(call.x, call.y);
    call.factor = a.factor;
    call.built.light = true;
    return call.PushRows();
}

Status Lower(Lowering& l, const Op&, const program::ScaleByPosition& a) {
    KernelCall<&Kernels::scale> call(l);
    call.Operands(call.x, call.positions, call.y);
    call.temperature = a.temperature;
    call.built.light = true;
    return call.PushRows();
}

Status Lower(Lowering& l, const Op& op, const program::ScaleHeads&) {
    KernelCall<kernels::ScaleHeads> call(l);
    call.Operands(call.x, call.positions, call.slope, call.offset, call.y);
    call.heads = l.ShapeOf(op.inputs[2])[0];
    return call.PushRows();
}

Status Lower(Lowering& l, const Op& op, const program::ScaleHeadsGrad&) {
    KernelCall<dense::ScaleHeadsGrad> call(l);
    call.Operands(call.dy, call.x, call.positions, call.dslope, call.doffset);
    call.RowsAndCols(op.inputs[0]);
    call.heads = l.Cols(op.outputs[0]);
    call.Owns(call.scratch, call.scratch_bytes, dense::ScaleHeadsGradScratchBytes(call));
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::SoftCap& a) {
    WEFT_TRY(CheckFloats(l, op));
    KernelCall<&Kernels::soft_cap> call(l);
    call.Operands(call.x, call.y);
    call.cap = a.cap;
    return call.PushRows();
}

Status Lower(Lowering& l, const Op& op, const program::SoftCapGrad& a) {
    WEFT_TRY(CheckFloats(l, op));
    KernelCall<&Kernels::soft_cap_grad> call(l);
    call.Operands(call.dy, call.x, call.dx);
    call.cap = a.cap;
    return call.PushRows();
}

Status Lower(Lowering& l, const Op& op, const program::Zero&) {
    KernelCall<dense::Fill> call(l);
    call.Operands(call.y);
    call.bytes = l.Of(op.outputs[0]).bytes;
    return call.Push();
}

}  // namespace weft::backend
