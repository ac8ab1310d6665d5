// Places barriers of the team (program/hazards.h), and finds the transfer that must end before a
// call, if transfers run beside the calls.

#include "backend/cpu/lower.h"
#include "program/hazards.h"

namespace weft::backend {
namespace {

struct Range {
    const std::byte* begin = nullptr;
    int64_t bytes = 0;
    bool Overlaps(const Range& other) const {
        return begin < other.begin + other.bytes && other.begin < begin + bytes;
    }
};

struct Touched {
    std::vector<Range> reads, writes;
};

Touched TouchedBy(const Call& call) {
    Touched touched;
    for (const OperandRef& slot : call.slots) {
        const Range range{slot.region.data, slot.region.bytes};
        const bool changes = slot.access == MemoryAccess::kChange;
        if (changes || slot.access == MemoryAccess::kRead) touched.reads.push_back(range);
        if (changes || slot.access == MemoryAccess::kWrite) touched.writes.push_back(range);
    }
    return touched;
}

}  // namespace

void PlaceBarriers(std::vector<Call>& calls) {
    program::Hazards<Range> hazards;
    bool after_communication = false;
    for (Call& call : calls) {
        const Touched touched = TouchedBy(call);
        // The other threads see a failure of communication at the next barrier.
        if (after_communication) hazards.Clear();
        call.barrier = hazards.Touch(touched.reads, touched.writes) || after_communication;
        after_communication = call.communicates();
    }
}

void PlaceWaits(std::vector<Call>& calls) {
    std::vector<std::pair<int32_t, Touched>> beside;  // 1 + index of a transfer, and its memory
    for (size_t i = 0; i < calls.size(); ++i) {
        Call& call = calls[i];
        const Touched touched = TouchedBy(call);
        if (call.beside) {
            beside.emplace_back(static_cast<int32_t>(i) + 1, touched);
            continue;
        }
        const std::span<const Range> reads(touched.reads), writes(touched.writes);
        for (auto it = beside.rbegin(); it != beside.rend() && call.waits_for == 0; ++it) {
            const std::span<const Range> read(it->second.reads), written(it->second.writes);
            const bool waits = program::AnyOverlap(reads, written) ||
                               program::AnyOverlap(writes, written) ||
                               program::AnyOverlap(writes, read);
            if (waits) call.waits_for = it->first;
        }
    }
}

void FuseEpilogues(std::vector<Call>& calls) {
    for (size_t i = 0; i < calls.size(); ++i) {
        if (calls[i].kind != CallKind::kAllReduce) continue;
        size_t end = i + 1;
        while (end < calls.size() && calls[end].rows.dim == calls[i].rows.dim && calls[end].light) {
            ++end;
        }
        // Barriers within a tail are omitted: the barrier after the tail replaces them.
        while (end > i + 1 && (end == calls.size() || !calls[end].barrier)) --end;
        calls[i].tail = static_cast<int32_t>(end - i - 1);
    }
}

}  // namespace weft::backend
