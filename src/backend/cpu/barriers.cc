// Where the team must meet: a call waits only if it touches bytes that another call since the last
// barrier wrote, or writes bytes that one read. Found from the calls' slots alone, so that reuse of
// the arena is covered by the same rule.
#include <algorithm>

#include "backend/cpu/lower.h"

namespace weft::backend {
namespace {

struct Range {
    const std::byte* begin = nullptr;
    int64_t bytes = 0;
    bool Overlaps(const Range& other) const {
        return begin < other.begin + other.bytes && other.begin < begin + bytes;
    }
};

bool AnyOverlap(const std::vector<Range>& a, const std::vector<Range>& b) {
    return std::ranges::any_of(a, [&](const Range& x) {
        return std::ranges::any_of(b, [&](const Range& y) { return x.Overlaps(y); });
    });
}

}  // namespace

void PlaceBarriers(std::vector<Call>& calls, const CompileOptions& options) {
    std::vector<Range> read, written;
    bool after_communication = false;
    for (Call& call : calls) {
        const int64_t rows = call.per_output ? options.max_outputs : options.max_tokens;
        std::vector<Range> reads, writes;
        for (const Slot& slot : call.slots) {
            const Range range{slot.region.data, slot.region.Bytes(rows)};
            switch (slot.touch) {
                case Touch::kRead: reads.push_back(range); break;
                case Touch::kWrite: writes.push_back(range); break;
                case Touch::kChange:
                    reads.push_back(range);
                    writes.push_back(range);
                    break;
                case Touch::kOwn: break;
            }
        }
        call.barrier = after_communication || AnyOverlap(reads, written) ||
                       AnyOverlap(writes, written) || AnyOverlap(writes, read);
        if (call.barrier) {
            read.clear();
            written.clear();
        }
        read.insert(read.end(), reads.begin(), reads.end());
        written.insert(written.end(), writes.begin(), writes.end());
        // A failure of communication is seen by the others at the next barrier.
        after_communication = call.communicates();
    }
}

void PlaceTails(std::vector<Call>& calls) {
    for (size_t i = 0; i < calls.size(); ++i) {
        if (calls[i].kind != CallKind::kAllReduce) continue;
        size_t end = i + 1;
        while (end < calls.size() && calls[end].per_output == calls[i].per_output &&
               calls[end].light) {
            ++end;
        }
        // Barriers within a tail are left out: the one after it stands for them.
        while (end > i + 1 && (end == calls.size() || !calls[end].barrier)) --end;
        calls[i].tail = static_cast<int32_t>(end - i - 1);
    }
}

}  // namespace weft::backend
