// Lowers RMS norms, LayerNorm and their gradients.
#include "backend/cpu/lowering.h"
#include "kernels/dense/norms.h"

namespace weft::backend {

// Makes a call for each group with its own weights.
Status Lower(Lowering& l, const Op& op, const program::RmsNorm& a) {
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

namespace {

// Adds calls of a gradient of a norm: one, or one for each group with its own weights. fill(args,
// call, first column): sets the operands in the kernel's arguments.
template <auto kPlain, auto kCentered, typename Fill>
Status PushNormGrad(Lowering& l, const Op& op, const auto& a, const Fill& fill) {
    const int64_t all = l.Cols(op.inputs[1]), cols = a.apart ? a.group : all;
    const auto push = [&](auto& call, dense::RmsNormGradArgs& args, int64_t begin) {
        call.Reads(args.dy, op.inputs[0], begin);
        call.Reads(args.x, op.inputs[1], begin);
        fill(args, call, begin);
        args.eps = a.eps;
        args.group = a.group;
        args.cols = cols;
        call.Rows(args.rows, op.inputs[1]);
    };
    for (int64_t begin = 0; begin < all; begin += cols) {
        if (!a.centered) {
            KernelCall<kPlain> call(l);
            push(call, call, begin);
            WEFT_TRY(call.Push());
            continue;
        }
        KernelCall<kCentered> call(l);
        push(call, call.norm, begin);
        call.Owns(call.scratch, call.scratch_bytes, dense::LayerNormGradScratchBytes(call));
        WEFT_TRY(call.Push());
    }
    return {};
}

}  // namespace

namespace {

void FillWhole(Lowering& l, const Op& op, const auto& a, ValueId squares, auto& call) {
    call.Reads(call.dy, op.inputs[0]);
    call.Reads(call.x, op.inputs[1]);
    call.Reads(call.squares, squares);
    call.squares_cols = l.Cols(squares);
    call.square = a.square;
    call.whole = a.whole;
    call.eps = a.eps;
    call.RowsAndCols(op.inputs[1]);
    call.Owns(call.scratch, call.scratch_bytes, dense::WholeNormGradScratchBytes(call));
}

}  // namespace

Status Lower(Lowering& l, const Op& op, const program::RmsNormGradInput& a) {
    if (a.whole != 0) {
        KernelCall<dense::WholeNormGradInput> call(l);
        FillWhole(l, op, a, op.inputs[3], call);
        call.Reads(call.weight, op.inputs[2]);
        call.Writes(call.dx, op.outputs[0]);
        call.Writes(call.dsquares, op.outputs[1]);
        return call.Push();
    }
    const auto fill = [&](dense::RmsNormGradArgs& args, auto& call, int64_t begin) {
        if (!a.plain) call.Reads(args.weight, op.inputs[2], a.apart ? begin : 0);
        call.Writes(args.dx, op.outputs[0], begin);
    };
    return PushNormGrad<&Kernels::norm_grad_input, dense::LayerNormGradInput>(l, op, a, fill);
}

Status Lower(Lowering& l, const Op& op, const program::RmsNormGradWeight& a) {
    if (a.whole != 0) {
        KernelCall<dense::WholeNormGradWeight> call(l);
        FillWhole(l, op, a, op.inputs[2], call);
        call.Changes(call.dw, op.outputs[0]);
        return call.Push();
    }
    const auto fill = [&](dense::RmsNormGradArgs& args, auto& call, int64_t begin) {
        call.Changes(args.dw, op.outputs[0], a.apart ? begin : 0);
    };
    return PushNormGrad<&Kernels::norm_grad_weight, dense::LayerNormGradWeight>(l, op, a, fill);
}

Status Lower(Lowering& l, const Op& op, const program::SumSquaresGrad& a) {
    KernelCall<dense::SumSquaresGrad> call(l);
    call.Operands(call.dy, call.x, call.dx);
    call.dy_cols = l.Cols(op.inputs[0]);
    call.column = a.column;
    call.begin = a.columns.begin;
    call.count = a.columns.count;
    return call.PushRows();
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
