// Lowers ops with a recurrent state.
#include "backend/cpu/lowering.h"
#include "kernels/dense/recurrent.h"
#include "kernels/pool_windows.h"

namespace weft::backend {
using Recurrent = kernels::RecurrentKernels;

namespace {

// inputs: x, weight, then bias and gates, as far as the op has them.
Status FillConv(Lowering& l, const program::CausalConv& a, bool biased,
                std::span<const ValueId> inputs, auto& call, kernels::CausalConvArgs& conv) {
    call.Reads(conv.x, inputs[0]);
    call.Reads(conv.weight, inputs[1]);
    if (biased) call.Reads(conv.bias, inputs[2]);
    if (a.gated) {
        call.Reads(conv.inner, inputs[biased ? 3 : 2]);
        call.Reads(conv.outer, inputs[biased ? 4 : 3]);
    }
    conv.cols = l.Cols(inputs[0]);
    conv.taps = l.Cols(inputs[1]);
    conv.silu = a.silu;
    if (conv.taps <= kernels::kMostTaps) return {};
    return l.Unsupported(
        fmt::format("{} taps; at most {} are supported", conv.taps, kernels::kMostTaps));
}

void FillRule(Lowering& l, const program::DeltaRule& a, std::span<const ValueId> inputs,
              kernels::DeltaRuleArgs& rule) {
    rule.heads = l.ShapeOf(inputs[a.ssd ? 4 : 5])[0];
    rule.key_heads = a.key_heads;
    rule.key_dim = l.Cols(inputs[0]) / a.key_heads;
    rule.value_dim = l.Cols(inputs[2]) / rule.heads;
    rule.each = a.by_channel ? rule.key_dim : 1;
    rule.first_head = a.first_head;
    rule.first_key_head = a.first_key_head;
    rule.group = a.group;
    rule.cycle = a.cycle;
    rule.query_scale = a.query_scale;
    rule.key_scale = a.key_scale;
}

void FillGates(Lowering& l, const program::DeltaRule& a, std::span<const ValueId> inputs,
               auto& call, kernels::DeltaGatesArgs& gates) {
    const size_t rates = a.ssd ? 4 : 5;
    call.Reads(gates.decay, inputs[3]);
    if (!a.ssd) call.Reads(gates.beta, inputs[4]);
    call.Reads(gates.a, inputs[rates]);
    call.Reads(gates.dt, inputs[rates + 1]);
    gates.heads = l.ShapeOf(inputs[rates])[0];
    gates.each = a.by_channel ? l.Cols(inputs[0]) / a.key_heads : 1;
    gates.floor = a.floor;
    gates.rates = a.ssd && a.by_channel;
}

struct GateRegions {
    OperandRegion fade, strength;
};

// Computes fades and strengths of the op's rows into scratch memory.
Result<GateRegions> PushGates(Lowering& l, const program::DeltaRule& a,
                              std::span<const ValueId> inputs) {
    KernelCall<kernels::DeltaGates> gates(l);
    FillGates(l, a, inputs, gates, gates);
    const int64_t rows = l.MostRows(inputs[2]), each = gates.heads * gates.each;
    const GateRegions regions{l.ScratchRows("fade", each * kFloat, rows),
                              l.ScratchRows("strength", gates.heads * kFloat, rows)};
    gates.Writes(gates.fade, regions.fade);
    gates.Writes(gates.strength, regions.strength);
    gates.Rows(gates.rows, inputs[2]);
    WEFT_TRY(gates.Push());
    return regions;
}

Status PushTrainedConv(Lowering& l, const Op& op, const program::CausalConv& a) {
    KernelCall<dense::TrainedConv> call(l);
    call.Binds(call.sequences, Bound::kSequences);
    WEFT_TRY(FillConv(l, a, a.biased(op.inputs.size()), op.inputs, call, call.conv));
    call.Writes(call.conv.y, op.outputs[0]);
    return call.Push();
}

Status PushTrainedDelta(Lowering& l, const Op& op, const program::DeltaRule& a) {
    WEFT_ASSIGN(const GateRegions regions, PushGates(l, a, op.inputs));
    KernelCall<dense::TrainedDelta> call(l);
    kernels::DeltaRuleArgs& rule = call.rule;
    call.Binds(call.sequences, Bound::kSequences);
    FillRule(l, a, op.inputs, rule);
    call.Operands(rule.q, rule.k, rule.v);
    call.Reads(rule.fade, regions.fade);
    call.Reads(rule.strength, regions.strength);
    if (a.ssd) call.Reads(rule.skip, op.inputs[6]);
    call.Owns(rule.scratch, rule.scratch_floats, kernels::DeltaScratch(rule.key_dim));
    call.Writes(rule.y, op.outputs[0]);
    return call.Push();
}

Status PushKeysGrad(Lowering& l, const Op& op, const OperandRegion& addends, int64_t slices) {
    KernelCall<dense::DeltaKeysGrad> call(l);
    call.Reads(call.addends, addends);
    call.slices = slices;
    call.Writes(call.dq, op.outputs[0]);
    call.Writes(call.dk, op.outputs[1]);
    return call.PushRows();
}

}  // namespace

Status Lower(Lowering& l, const Op& op, const program::CausalConv& a) {
    if (a.stateless) return PushTrainedConv(l, op, a);
    KernelCall<&Recurrent::causal_conv> call(l);
    call.Binds(call.sequences, Bound::kStates);
    WEFT_TRY(FillConv(l, a, a.biased(op.inputs.size()), op.inputs, call, call));
    call.Changes(call.state, op.inputs.back());
    call.Writes(call.y, op.outputs[0]);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::CausalConvGrad& a) {
    KernelCall<dense::ConvGradInput> call(l);
    call.Binds(call.sequences, Bound::kSequences);
    call.Reads(call.dy, op.inputs[0]);
    const std::span inputs = std::span(op.inputs).subspan(1);
    WEFT_TRY(FillConv(l, a.forward, inputs.size() % 2 == 1, inputs, call, call.conv));
    call.Writes(call.dx, op.outputs[0]);
    if (a.forward.gated) {
        call.Writes(call.dinner, op.outputs[1]);
        call.Writes(call.douter, op.outputs[2]);
    }
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::CausalConvGradWeight& a) {
    KernelCall<dense::ConvGradWeight> call(l);
    call.Binds(call.sequences, Bound::kSequences);
    call.Reads(call.dy, op.inputs[0]);
    const std::span inputs = std::span(op.inputs).subspan(1);
    WEFT_TRY(FillConv(l, a.forward, a.biased, inputs, call, call.conv));
    call.Changes(call.dw, op.outputs[0]);
    if (a.biased) call.Changes(call.db, op.outputs[1]);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::DeltaRule& a) {
    if (a.stateless) return PushTrainedDelta(l, op, a);
    WEFT_ASSIGN(const GateRegions regions, PushGates(l, a, op.inputs));
    KernelCall<&Recurrent::delta_rule> call(l);
    call.Binds(call.sequences, Bound::kStates);
    FillRule(l, a, op.inputs, call);
    call.Operands(call.q, call.k, call.v);
    call.Reads(call.fade, regions.fade);
    call.Reads(call.strength, regions.strength);
    if (a.ssd) call.Reads(call.skip, op.inputs[6]);
    call.Changes(call.state, op.inputs[7]);
    call.Owns(call.scratch, call.scratch_floats, kernels::DeltaScratch(call.key_dim));
    call.Writes(call.y, op.outputs[0]);
    return call.Push();
}

// The calls: the gates again, the gradients of the recurrence (with slices also their sums), and
// the gradients of the gates.
Status Lower(Lowering& l, const Op& op, const program::DeltaRuleGrad& a) {
    const program::DeltaRule& forward = a.forward;
    const std::span<const ValueId> inputs = std::span(op.inputs).subspan(1);
    WEFT_ASSIGN(const GateRegions regions, PushGates(l, forward, inputs));
    const int64_t rows = l.MostRows(op.inputs[0]);
    KernelCall<dense::DeltaGrad> call(l);
    kernels::DeltaRuleArgs& rule = call.rule;
    call.Binds(call.sequences, Bound::kSequences);
    FillRule(l, forward, inputs, rule);
    const OperandRegion dfade = l.ScratchRows("dfade", rule.heads * rule.each * kFloat, rows);
    const OperandRegion dstrength = l.ScratchRows("dstrength", rule.heads * kFloat, rows);
    call.Operands(call.dy, rule.q, rule.k, rule.v);
    call.Reads(rule.fade, regions.fade);
    call.Reads(rule.strength, regions.strength);
    if (forward.ssd) {
        call.Reads(rule.skip, inputs[6]);
        call.Writes(call.dskip, op.outputs[5]);
    }
    const int64_t slices = dense::DeltaSlices(rule), keys = rule.key_heads * rule.key_dim;
    const OperandRegion addends =
        slices == 1 ? OperandRegion()
                    : l.ScratchRows("addends of keys", slices * 2 * keys * kFloat, rows);
    if (slices == 1) {
        call.Writes(call.dq, op.outputs[0]);
        call.Writes(call.dk, op.outputs[1]);
    } else {
        call.Writes(call.addends, addends);
    }
    call.Writes(call.dv, op.outputs[2]);
    call.Writes(call.dfade, dfade);
    call.Writes(call.dstrength, dstrength);
    call.Owns(call.scratch, call.scratch_bytes,
              dense::DeltaGradScratchBytes(call, std::min(rows, l.LongestSequence())));
    WEFT_TRY(call.Push());
    if (slices > 1) WEFT_TRY(PushKeysGrad(l, op, addends, slices));
    KernelCall<dense::DeltaGatesGrad> gates(l);
    FillGates(l, forward, inputs, gates, gates.gates);
    gates.Reads(gates.fade, regions.fade);
    gates.Reads(gates.dfade, dfade);
    gates.Reads(gates.dstrength, dstrength);
    gates.Writes(gates.ddecay, op.outputs[3]);
    if (!forward.ssd) gates.Writes(gates.dbeta, op.outputs[4]);
    gates.Writes(gates.da, op.outputs[forward.ssd ? 4 : 5]);
    gates.Rows(gates.gates.rows, op.inputs[0]);
    return gates.Push();
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
