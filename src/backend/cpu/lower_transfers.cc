// Lowers transfers between ranks.
#include "backend/cpu/lowering.h"

namespace weft::backend {

Status LowerTransfer(Lowering& l, const Op& op) {
    OpCall<TransferArgs> call(l);
    HostValue &in = call.in, &out = call.out;
    const program::Operands rows = program::OperandsOf(op).value();
    const bool sums = op.kind() == program::OpKind::kAllReduce;
    call.built.kind = sums ? CallKind::kAllReduce : CallKind::kTransfer;
    call.built.beside = l.options.beside && op.Is(program::Trait::kBeside) &&
                        static_cast<size_t>(l.op) < l.chunked.chunks.back().end;
    // In a step in parts (step_parts.h), another part may overwrite the prepared form during the
    // transfer.
    if (sums) l.prepared.activations = {};
    const auto adds = [](const program::Operand* row) {
        return row->access == program::Access::kAdd;
    };
    if (!op.outputs.empty()) {
        const ValueId y = op.outputs[0];
        adds(rows.outputs[0]) ? call.Changes(out, y) : call.Writes(out, y);
        op.inputs.empty() ? call.Rows(out.rows, y) : call.MoreRows(out.rows, y);
    }
    if (!op.inputs.empty()) {
        const ValueId x = op.inputs[0];
        rows.inputs[0]->spent || adds(rows.inputs[0]) ? call.Changes(in, x) : call.Reads(in, x);
        call.Rows(in.rows, x);
    }
    return call.Push();
}

}  // namespace weft::backend
