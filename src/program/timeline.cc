#include "program/timeline.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace weft::program {

bool IsTransfer(OpKind kind) {
    return RowOf(kind).Is(Trait::kTransfer);
}

bool RunsBeside(OpKind kind) {
    return RowOf(kind).Is(Trait::kBeside);
}

Timeline WalkTimeline(const Program& program, std::span<const OpCost> costs,
                      const MachineRates& rates) {
    WEFT_CHECK(costs.size() == program.ops.size());
    Timeline line;
    double now = 0, wire_free = 0;
    std::vector<double> there(program.values.size(), 0);  // by home: since when
    for (size_t i = 0; i < program.ops.size(); ++i) {
        const Op& op = program.ops[i];
        const OpCost& cost = costs[i];
        if (IsTransfer(op.kind())) {
            const double seconds = rates.wire(op, cost.wire_bytes);
            line.wire += seconds;
            wire_free = std::max(now, wire_free) + seconds;
            if (rates.overlap && RunsBeside(op.kind())) {
                there[static_cast<size_t>(program.HomeOf(op.outputs[0]))] = wire_free;
            } else {
                now = wire_free;
            }
            continue;
        }
        for (const ValueId id : op.inputs) {
            now = std::max(now, there[static_cast<size_t>(program.HomeOf(id))]);
        }
        const double seconds = std::max(
            cost.flops / rates.flops_per_s,
            static_cast<double>(cost.read_bytes + cost.written_bytes) / rates.memory_bytes_per_s);
        line.compute += seconds;
        now += seconds;
    }
    line.whole = std::max(now, wire_free);
    return line;
}

}  // namespace weft::program
