// Finds the commands that need a barrier before them. A command needs one if it touches bytes that
// a command since the last barrier wrote, or writes bytes that such a command read. Only byte
// ranges count, so the same rule covers reuse of the arena and of scratch memory.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

namespace weft::program {

// Range: a range of bytes, with Overlaps(other).
template <typename Range>
bool AnyOverlap(std::span<const Range> a, std::span<const Range> b) {
    return std::ranges::any_of(a, [&](const Range& x) {
        return std::ranges::any_of(b, [&](const Range& y) { return x.Overlaps(y); });
    });
}

template <typename Range>
class Hazards {
  public:
    // Notes the accesses of the next command. Returns whether a barrier must precede it.
    bool Touch(std::span<const Range> reads, std::span<const Range> writes) {
        const std::span<const Range> read(read_), written(written_);
        const bool waits =
            AnyOverlap(reads, written) || AnyOverlap(writes, written) || AnyOverlap(writes, read);
        if (waits) Clear();
        read_.insert(read_.end(), reads.begin(), reads.end());
        written_.insert(written_.end(), writes.begin(), writes.end());
        return waits;
    }
    // Notes a barrier.
    void Clear() {
        read_.clear();
        written_.clear();
    }

  private:
    std::vector<Range> read_, written_;
};

}  // namespace weft::program
