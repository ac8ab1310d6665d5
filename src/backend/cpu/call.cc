#include "backend/cpu/call.h"

#include <utility>

namespace weft::backend {
namespace {

void BindRows(Call& call, const RowCount& count, const Bindings& to) {
    if (count.at != OperandRef::kNowhere) {
        call.args.Store(count.at, to.RowsOf(count.dim) * count.factor);
    }
}

void MoveToSlot(Call& call, int64_t slot) {
    const int64_t slots = slot - std::exchange(call.slot, slot);
    if (slots == 0) return;
    for (const OperandRef& at : call.slots) {
        if (at.at == OperandRef::kNowhere || at.region.slot_stride == 0) continue;
        const std::byte* address = call.args.Load<const std::byte*>(at.at);
        call.args.Store(at.at, address + slots * at.region.slot_stride);
    }
}

}  // namespace

void BindCall(Call& call, const Bindings& to) {
    BindRows(call, call.rows, to);
    BindRows(call, call.more_rows, to);
    MoveToSlot(call, to.slot);
    switch (call.bound) {
        case Bound::kNothing: return;
        case Bound::kSequences: return call.args.Store(call.bound_at, to.sequences);
        case Bound::kStates: return call.args.Store(call.bound_at, to.states);
        case Bound::kAdapted: return call.args.Store(call.bound_at, to.adapted);
        case Bound::kAdaptedOutputs: return call.args.Store(call.bound_at, to.adapted_outputs);
        case Bound::kTokenOrder: return call.args.Store(call.bound_at, to.token_order);
        case Bound::kFirstOwnRow: return call.args.Store(call.bound_at, to.own_begin);
    }
}

}  // namespace weft::backend
