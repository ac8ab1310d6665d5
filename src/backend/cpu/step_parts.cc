#include "backend/cpu/step_parts.h"

#include <algorithm>

namespace weft::backend {
namespace {

using kernels::Sequence;
using kernels::StateSequence;

// A call that communicates can be cut only if it is a sum, which runs beside the other part's
// calls.
bool CanBeCut(const Call& call) {
    return !call.per_output() && !call.whole &&
           (!call.communicates() || call.kind == CallKind::kAllReduce);
}

// Calls finish(part, whole) for the part of each sequence whose rows lie in [begin, begin + count).
template <typename T, typename Finish>
void CutEach(std::span<const T> sequences, int64_t begin, int64_t count, std::vector<T>& out,
             Finish finish) {
    out.clear();
    for (const T& whole : sequences) {
        const int64_t whole_end = whole.row_begin + whole.row_count;
        const int64_t first = std::max<int64_t>(whole.row_begin, begin);
        const int64_t end = std::min(whole_end, begin + count);
        if (first >= end) continue;
        T& part = out.emplace_back(whole);
        part.row_begin = static_cast<int32_t>(first);
        part.row_count = static_cast<int32_t>(end - first);
        finish(part, whole);
    }
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

// Moves a call's addresses to the part's first row. Rows of experts are in the order of a plan, and
// each part plans its own rows. Calls bound to sequences, or to rows with adapters, find their rows
// through that binding.
void ShiftRows(Call& call, const PartRows& rows) {
    WEFT_CHECK(CanBeCut(call));
    const auto bind = [&](const auto& list) { call.args.Store(call.bound_at, std::span(list)); };
    if (call.bound == Bound::kSequences) return bind(rows.sequences);
    if (call.bound == Bound::kStates) return bind(rows.states);
    if (call.bound == Bound::kAdapted) return bind(rows.adapted);
    for (const RowCount& count : {call.rows, call.more_rows}) {
        if (count.at != OperandRef::kNowhere) call.args.Store(count.at, rows.count * count.factor);
    }
    for (const OperandRef& slot : call.slots) {
        if (slot.at == OperandRef::kNowhere || slot.region.row_bytes == 0) continue;
        const std::byte* address = call.args.Load<const std::byte*>(slot.at);
        call.args.Store(slot.at, address + rows.begin * slot.region.row_bytes);
    }
}

void CutSequences(std::span<const Sequence> sequences, int64_t begin, int64_t count,
                  std::vector<Sequence>& out) {
    CutEach(sequences, begin, count, out, [](Sequence& part, const Sequence& whole) {
        part.position += part.row_begin - whole.row_begin;
    });
}

void CutStates(std::span<const StateSequence> states, int64_t begin, int64_t count,
               std::vector<StateSequence>& out) {
    CutEach(states, begin, count, out, [](StateSequence& part, const StateSequence& whole) {
        if (part.row_begin > whole.row_begin) part.from = part.to;
        const auto write_at = [&](int64_t row) {
            return std::ranges::lower_bound(whole.writes, row, {}, &kernels::StateWrite::row);
        };
        part.writes = {write_at(part.row_begin), write_at(part.row_begin + part.row_count)};
    });
}

}  // namespace weft::backend
