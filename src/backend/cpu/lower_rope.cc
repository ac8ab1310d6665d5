// Lowers rotary position embeddings.
#include "backend/cpu/lowering.h"

namespace weft::backend {
Status Lower(Lowering& l, const Op& op, const program::Rope& a) {
    if (l.trains() && a.behind != 0) {
        return l.Unsupported("training supports no rotation behind the position");
    }
    // Ropes of the same angles share a table of cosines and sines.
    const std::tuple angles{a.inverse_frequency, a.magnitude, a.behind};
    const auto known = std::ranges::find(l.angles, angles);
    const auto number = known - l.angles.begin();
    if (known == l.angles.end()) l.angles.push_back(angles);
    const OperandRegion table =
        l.ScratchRows(fmt::format("table {}", number), a.rotary_dim * kFloat, l.options.max_tokens);
    std::vector<std::byte*>& tables = l.prepared.rope_tables;
    if (std::ranges::find(tables, table.data) == tables.end()) {
        tables.push_back(table.data);
        KernelCall<&Kernels::rope_table> make(l);
        make.Reads(make.positions, op.inputs[1]);
        make.inverse_frequency = a.inverse_frequency.data();
        make.rotary_dim = a.rotary_dim;
        make.magnitude = a.magnitude;
        make.behind = a.behind;
        make.Writes(make.out, table);
        make.Rows(make.rows, op.inputs[1]);
        WEFT_TRY(make.Push());
    }
    KernelCall<&Kernels::rope> call(l);
    call.Reads(call.x, op.inputs[0]);
    call.Reads(call.cos_sin, table);
    call.Writes(call.y, op.outputs[0]);
    call.sign = a.sign;
    call.neighbours = a.neighbours;
    call.last = a.last;
    call.head_dim = a.head_dim;
    call.rotary_dim = a.rotary_dim;
    call.heads = l.Cols(op.outputs[0]) / a.head_dim;
    call.Rows(call.rows, op.outputs[0]);
    return call.Push();
}

}  // namespace weft::backend
