#include "grammar/point_set.h"

#include <algorithm>

namespace weft::grammar {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;
// Last code points encoded in one, two, three and four bytes.
constexpr std::array<uint32_t, 4> kLastOfLength = {0x7F, 0x7FF, 0xFFFF, kMostPoint};

std::array<uint8_t, 4> Encode(uint32_t point, size_t length) {
    static constexpr std::array<uint8_t, 4> kLead = {0x00, 0xC0, 0xE0, 0xF0};
    std::array<uint8_t, 4> bytes = {};
    for (size_t at = length - 1; at > 0; --at) {
        bytes[at] = static_cast<uint8_t>(0x80 | (point & 0x3F));
        point >>= 6;
    }
    bytes[0] = static_cast<uint8_t>(kLead[length - 1] | point);
    return bytes;
}

// Splits [low, high], of one encoded length, into sequences of independent byte ranges.
void AddSequences(uint32_t low, uint32_t high, size_t length, std::vector<ByteSequence>& out) {
    for (size_t tail = 1; tail < length; ++tail) {
        const uint32_t mask = (uint32_t{1} << (6 * tail)) - 1;
        if ((low & ~mask) == (high & ~mask)) continue;
        if ((low & mask) != 0) {
            AddSequences(low, low | mask, length, out);
            return AddSequences((low | mask) + 1, high, length, out);
        }
        if ((high & mask) != mask) {
            AddSequences(low, (high & ~mask) - 1, length, out);
            return AddSequences(high & ~mask, high, length, out);
        }
    }
    const auto first = Encode(low, length), last = Encode(high, length);
    ByteSequence sequence = {{}, length};
    for (size_t at = 0; at < length; ++at) sequence.bytes[at] = {first[at], last[at]};
    out.push_back(sequence);
}

}  // namespace

PointSet Normalized(PointSet set) {
    std::sort(set.begin(), set.end(), [](const PointRange& a, const PointRange& b) {
        return a.low != b.low ? a.low < b.low : a.high < b.high;
    });
    PointSet joined;
    const auto add = [&](uint32_t low, uint32_t high) {
        if (low > high) return;
        if (!joined.empty() && low <= joined.back().high + 1) {
            joined.back().high = std::max(joined.back().high, high);
        } else {
            joined.push_back({low, high});
        }
    };
    for (const PointRange& range : set) {
        const uint32_t high = std::min(range.high, kMostPoint);
        add(range.low, std::min(high, kFirstSurrogate - 1));
        add(std::max(range.low, kLastSurrogate + 1), high);
    }
    return joined;
}

PointSet Complement(PointSet set) {
    PointSet rest;
    uint32_t next = 0;
    for (const PointRange& range : Normalized(std::move(set))) {
        if (range.low > next) rest.push_back({next, range.low - 1});
        next = range.high + 1;
    }
    if (next <= kMostPoint) rest.push_back({next, kMostPoint});
    return Normalized(std::move(rest));
}

PointSet Intersection(const PointSet& a, const PointSet& b) {
    PointSet both;
    for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
        const uint32_t low = std::max(a[i].low, b[j].low);
        const uint32_t high = std::min(a[i].high, b[j].high);
        if (low <= high) both.push_back({low, high});
        a[i].high < b[j].high ? ++i : ++j;
    }
    return both;
}

std::vector<ByteSequence> Utf8Sequences(const PointSet& normalized) {
    std::vector<ByteSequence> sequences;
    for (const PointRange& range : normalized) {
        uint32_t first = 0;
        for (size_t length = 1; length <= 4; ++length) {
            const uint32_t low = std::max(range.low, first);
            const uint32_t high = std::min(range.high, kLastOfLength[length - 1]);
            if (low <= high) AddSequences(low, high, length, sequences);
            first = kLastOfLength[length - 1] + 1;
        }
    }
    return sequences;
}

}  // namespace weft::grammar
