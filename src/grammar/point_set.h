// Sets of code points, and how they are written in UTF-8: what the character classes of grammars
// are made of. Surrogates and numbers above U+10FFFF are in no set: they have no UTF-8.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::grammar {

inline constexpr uint32_t kMostPoint = 0x10FFFF;

struct PointRange {
    uint32_t low;
    uint32_t high;  // included
    bool operator==(const PointRange&) const = default;
};
using PointSet = std::vector<PointRange>;

// In order, neighbours joined, without what has no UTF-8.
PointSet Normalized(PointSet set);
// Everything else. `set` in any order; the result is normalized.
PointSet Complement(PointSet set);
// What is in both. Both normalized, as is the result.
PointSet Intersection(const PointSet& a, const PointSet& b);

struct ByteRange {
    uint8_t low;
    uint8_t high;  // included
    bool operator==(const ByteRange&) const = default;
};

// One byte out of each range, one after the other.
struct ByteSequence {
    std::array<ByteRange, 4> bytes;
    size_t length;
};

// Sequences that together stand for exactly the UTF-8 of the set's points, each once.
std::vector<ByteSequence> Utf8Sequences(const PointSet& normalized);

}  // namespace weft::grammar
