#include "backend/cpu/step_parts.h"

#include <algorithm>

namespace weft::backend {
namespace {

using kernels::Sequence;

// A call that communicates can be cut only if it is a sum: sums run beside the other half's calls.
bool CanBeCut(const Call& call) {
    return !call.per_output() && !call.whole &&
           (!call.communicates() || call.kind == CallKind::kAllReduce);
}

}  // namespace

OverlapRegion FindOverlapRegion(const std::vector<Call>& calls) {
    OverlapRegion best, run;
    for (size_t i = 0; i <= calls.size(); ++i) {
        if (i < calls.size() && CanBeCut(calls[i])) {
            if (calls[i].kind == CallKind::kAllReduce) run.sums.push_back(i);
            continue;
        }
        run.end = i;
        if (run.sums.size() > best.sums.size()) best = run;
        run = {i + 1, i + 1, {}};
    }
    // A few sums out of many (if layers have calls that cannot be split) are not worth the cost.
    const auto sums = std::ranges::count(calls, CallKind::kAllReduce, &Call::kind);
    return 2 * best.sums.size() >= static_cast<size_t>(sums) ? best : OverlapRegion{};
}

// Rows of experts are in the order of a plan. Each half plans its own rows, at the place of its
// first row. Calls that are bound to sequences, or to rows with adapters, find their rows through
// these.
void ShiftRows(Call& call, const PartRows& rows) {
    WEFT_CHECK(CanBeCut(call));
    const auto bind = [&](const auto& list) { call.args.Store(call.bound_at, std::span(list)); };
    if (call.bound == Bound::kSequences) return bind(rows.sequences);
    if (call.bound == Bound::kStates) return bind(rows.states);
    if (call.bound == Bound::kAdapted) return bind(rows.adapted);
    if (call.rows.at != OperandRef::kNowhere) {
        call.args.Store(call.rows.at, rows.count * call.rows.factor);
    }
    for (const OperandRef& slot : call.slots) {
        if (slot.at == OperandRef::kNowhere || slot.region.row_bytes == 0) continue;
        const std::byte* address = call.args.Load<const std::byte*>(slot.at);
        call.args.Store(slot.at, address + rows.begin * slot.region.row_bytes);
    }
}

void CutSequences(std::span<const Sequence> sequences, int64_t begin, int64_t count,
                  std::vector<Sequence>& out) {
    out.clear();
    for (Sequence sequence : sequences) {
        const int64_t first = std::max<int64_t>(sequence.row_begin, begin);
        const int64_t end =
            std::min<int64_t>(sequence.row_begin + sequence.row_count, begin + count);
        if (first >= end) continue;
        sequence.position += static_cast<int32_t>(first - sequence.row_begin);
        sequence.row_begin = static_cast<int32_t>(first);
        sequence.row_count = static_cast<int32_t>(end - first);
        out.push_back(sequence);
    }
}

void CutStates(std::span<const kernels::StateSequence> states, int64_t begin, int64_t count,
               std::vector<kernels::StateSequence>& out) {
    out.clear();
    for (kernels::StateSequence state : states) {
        const int64_t first = std::max<int64_t>(state.row_begin, begin);
        const int64_t end = std::min<int64_t>(state.row_begin + state.row_count, begin + count);
        if (first >= end) continue;
        if (first > state.row_begin) state.from = state.to;
        const auto write_at = [&](int64_t row) {
            return std::ranges::lower_bound(state.writes, row, {}, &kernels::StateWrite::row);
        };
        state.writes = {write_at(first), write_at(end)};
        state.row_begin = static_cast<int32_t>(first);
        state.row_count = static_cast<int32_t>(end - first);
        out.push_back(state);
    }
}

}  // namespace weft::backend
