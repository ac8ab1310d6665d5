// Lowers RMS norms, LayerNorm and their gradients.
#include "backend/cpu/lowering.h"

namespace weft::backend {

// Makes a call for each group with its own weights.
Status Lower(Lowering& l, const Op& op, const program::RmsNorm& a) {
    if (l.trains() && a.whole != 0) {
        return l.Unsupported("norms over rows that ranks share out have no gradient");
    }
    const int64_t all = l.Cols(op.outputs[0]), cols = a.apart ? a.group : all;
    for (int64_t begin = 0; begin < all; begin += cols) {
        KernelCall<&Kernels::rms_norm> call(l);
        call.Reads(call.x, op.inputs[0], begin);
        if (!a.plain) call.Reads(call.weight, op.inputs[1], begin);
        call.Writes(call.y, op.outputs[0], begin);
        call.eps = a.eps;
        call.centered = a.centered;
        call.group = a.group;
        call.cols = cols;
        if (a.whole != 0) {
            call.Reads(call.squares, op.inputs[2], a.square);
            call.squares_stride = l.Cols(op.inputs[2]);
            call.whole = a.whole;
        }
        call.Rows(call.rows, op.outputs[0]);
        call.built.light = true;
        WEFT_TRY(call.Push());
    }
    return {};
}

Status Lower(Lowering& l, const Op& op, const program::RmsNormGradInput& a) {
    KernelCall<&Kernels::norm_grad_input> call(l);
    call.Operands(call.dy, call.x, call.weight, call.dx);
    call.eps = a.eps;
    call.group = a.group;
    return call.PushRows(op.inputs[1]);
}

Status Lower(Lowering& l, const Op& op, const program::RmsNormGradWeight& a) {
    KernelCall<&Kernels::norm_grad_weight> call(l);
    call.Operands(call.dy, call.x, call.dw);
    call.eps = a.eps;
    call.group = a.group;
    return call.PushRows(op.inputs[1]);
}

// Makes a call for each input.
Status Lower(Lowering& l, const Op& op, const program::SumSquares& a) {
    const ValueId y = op.outputs[0];
    for (size_t i = 0; i < a.columns.size(); ++i) {
        KernelCall<&Kernels::sum_squares> call(l);
        const auto column = static_cast<int64_t>(i);
        call.Reads(call.x, op.inputs[i], a.columns[i].begin);
        l.IsWide(y) ? call.Writes(call.wide, y, column) : call.Writes(call.y, y, column);
        call.x_stride = l.Cols(op.inputs[i]);
        call.cols = a.columns[i].count;
        call.y_stride = l.Cols(y);
        call.Rows(call.rows, y);
        WEFT_TRY(call.Push());
    }
    return {};
}

}  // namespace weft::backend
