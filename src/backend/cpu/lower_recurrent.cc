// Lowers ops with a recurrent state.
#include "backend/cpu/lowering.h"
#include "kernels/pool_windows.h"

namespace weft::backend {
using Recurrent = kernels::RecurrentKernels;

Status Lower(Lowering& l, const Op& op, const program::CausalConv& a) {
    KernelCall<&Recurrent::causal_conv> call(l);
    call.Binds(call.sequences, Bound::kStates);
    call.Operands(call.x, call.weight);
    if (a.biased(op.inputs.size())) call.Reads(call.bias, op.inputs[2]);
    if (a.gated) {
        call.Reads(call.inner, op.inputs.end()[-3]);
        call.Reads(call.outer, op.inputs.end()[-2]);
    }
    call.cols = l.Cols(op.outputs[0]);
    call.taps = l.Cols(op.inputs[1]);
    call.silu = a.silu;
    call.Changes(call.state, op.inputs.back());
    call.Writes(call.y, op.outputs[0]);
    if (call.taps > kernels::kMostTaps) {
        return l.Unsupported(
            fmt::format("{} taps; at most {} are supported", call.taps, kernels::kMostTaps));
    }
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::DeltaRule& a) {
    const program::Shape& state = l.ShapeOf(op.inputs[7]);
    const int64_t heads = state[0], each = a.by_channel ? state[1] : 1;
    const int64_t rows = l.MostRows(op.outputs[0]);
    const OperandRegion fade = l.ScratchRows("fade", heads * each * kFloat, rows);
    const OperandRegion strength = l.ScratchRows("strength", heads * kFloat, rows);
    const size_t rates = a.ssd ? 4 : 5;
    KernelCall<kernels::DeltaGates> gates(l);
    gates.Reads(gates.decay, op.inputs[3]);
    if (!a.ssd) gates.Reads(gates.beta, op.inputs[4]);
    gates.Reads(gates.a, op.inputs[rates]);
    gates.Reads(gates.dt, op.inputs[rates + 1]);
    gates.heads = heads;
    gates.each = each;
    gates.floor = a.floor;
    gates.Writes(gates.fade, fade);
    gates.Writes(gates.strength, strength);
    gates.Rows(gates.rows, op.outputs[0]);
    WEFT_TRY(gates.Push());
    KernelCall<&Recurrent::delta_rule> call(l);
    call.Binds(call.sequences, Bound::kStates);
    call.Operands(call.q, call.k, call.v);
    call.Reads(call.fade, fade);
    call.Reads(call.strength, strength);
    if (a.ssd) call.Reads(call.skip, op.inputs[6]);
    call.heads = heads;
    call.key_heads = a.key_heads;
    call.key_dim = state[1];
    call.value_dim = state[2];
    call.each = each;
    call.first_head = a.first_head;
    call.first_key_head = a.first_key_head;
    call.group = a.group;
    call.cycle = a.cycle;
    call.query_scale = a.query_scale;
    call.key_scale = a.key_scale;
    call.Changes(call.state, op.inputs[7]);
    call.Owns(call.scratch, call.scratch_floats, kernels::DeltaScratch(call.key_dim));
    call.Writes(call.y, op.outputs[0]);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::PoolWindows& a) {
    KernelCall<kernels::PoolWindows> call(l);
    call.Binds(call.sequences, Bound::kStates);
    call.Operands(call.values, call.gates, call.positions, call.bias, call.state, call.y);
    call.width = l.Cols(op.outputs[0]);
    call.window = l.ShapeOf(op.inputs[3])[0];
    call.overlaps = a.overlaps;
    return call.Push();
}

}  // namespace weft::backend
