#include "backend/vulkan/hazards.h"

#include <algorithm>

namespace weft::backend::vulkan {
namespace {

bool Overlap(const Region& a, const Region& b) {
    return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

bool AnyMeet(std::span<const Region> a, std::span<const Region> b) {
    return std::ranges::any_of(a, [&](const Region& x) {
        return std::ranges::any_of(b, [&](const Region& y) { return Overlap(x, y); });
    });
}

}  // namespace

bool Hazards::Touch(std::span<const Region> reads, std::span<const Region> writes) {
    const bool waits =
        AnyMeet(reads, written_) || AnyMeet(writes, written_) || AnyMeet(writes, read_);
    if (waits) Clear();
    read_.insert(read_.end(), reads.begin(), reads.end());
    written_.insert(written_.end(), writes.begin(), writes.end());
    return waits;
}

}  // namespace weft::backend::vulkan
