// Sets of code points and their UTF-8 encodings, for character classes of grammars. Surrogates and
// numbers above U+10FFFF are excluded, because UTF-8 cannot encode them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::grammar {

inline constexpr uint32_t kMostPoint = 0x10FFFF;

struct PointRange {
    uint32_t low;
    uint32_t high;  // inclusive
    bool operator==(const PointRange&) const = default;
};
using PointSet = std::vector<PointRange>;

// Sorts the set, joins adjacent ranges and removes invalid code points.
PointSet Normalized(PointSet set);
// All other code points. `set` may be in any order; the result is normalized.
PointSet Complement(PointSet set);
// The common code points. Inputs must be normalized; the result is normalized.
PointSet Intersection(const PointSet& a, const PointSet& b);

struct ByteRange {
    uint8_t low;
    uint8_t high;  // inclusive
    bool operator==(const ByteRange&) const = default;
};

// One byte of each range, in order.
struct ByteSequence {
    std::array<ByteRange, 4> bytes;
    size_t length;
};

// Byte sequences that together match exactly the UTF-8 of the set's code points, each once.
std::vector<ByteSequence> Utf8Sequences(const PointSet& normalized);

}  // namespace weft::grammar
