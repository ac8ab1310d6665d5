#include "base/byte_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace weft {
namespace {

__extension__ typedef unsigned __int128 Uint128;

// Words of a window: key(i) is the key of the word's position times the window's key.
constexpr size_t kWindowWords = 512;

// (Steele et al., Fast splittable pseudorandom number generators, 2014.)
constexpr uint64_t SplitMix(uint64_t number) {
    number = (number + 1) * 0x9e3779b97f4a7c15ull;
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9ull;
    number = (number ^ number >> 27) * 0x94d049bb133111ebull;
    return number ^ number >> 31;
}

constexpr auto kWordKeys = [] {
    std::array<uint64_t, kWindowWords> keys{};
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = SplitMix(i);
    return keys;
}();

// Odd, so that no sum of a window is lost.
Uint128 WindowKey(uint64_t window) {
    const uint64_t number = kWindowWords + 2 * window;
    return Uint128{SplitMix(number)} << 64 | SplitMix(number + 1) | 1;
}

// The word with `data`, at most 8 bytes, from byte `first` on.
uint64_t WordOf(std::span<const std::byte> data, uint64_t first) {
    std::array<std::byte, 8> bytes{};
    std::memcpy(bytes.data() + first, data.data(), data.size());
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    return word;
}

// The sum over `data`, which begins at byte `first` of a window and ends within the window.
Uint128 SumOfWindow(uint64_t first, std::span<const std::byte> data) {
    size_t i = first / 8;
    Uint128 sums[2] = {};
    if (const uint64_t skip = first % 8; skip != 0) {
        const size_t some = std::min<size_t>(8 - skip, data.size());
        sums[0] = Uint128{kWordKeys[i++]} * WordOf(data.first(some), skip);
        data = data.subspan(some);
    }
    const std::byte* at = data.data();
    const size_t end = i + data.size() / 8;
    for (; i + 1 < end; i += 2, at += 16) {
        uint64_t words[2];
        std::memcpy(words, at, sizeof words);
        sums[0] += Uint128{kWordKeys[i]} * words[0];
        sums[1] += Uint128{kWordKeys[i + 1]} * words[1];
    }
    for (data = data.subspan(static_cast<size_t>(at - data.data())); !data.empty();) {
        const size_t some = std::min<size_t>(8, data.size());
        sums[0] += Uint128{kWordKeys[i++]} * WordOf(data.first(some), 0);
        data = data.subspan(some);
    }
    return sums[0] + sums[1];
}

}  // namespace

void ByteSum::Add(uint64_t place, std::span<const std::byte> data) {
    static_assert(std::endian::native == std::endian::little);
    constexpr uint64_t kWindowBytes = kWindowWords * 8;
    Uint128 sum = Uint128{high} << 64 | low;
    while (!data.empty()) {
        const uint64_t first = place % kWindowBytes;
        const size_t some = std::min<size_t>(kWindowBytes - first, data.size());
        sum += WindowKey(place / kWindowBytes) * SumOfWindow(first, data.first(some));
        place += some;
        data = data.subspan(some);
    }
    low = static_cast<uint64_t>(sum);
    high = static_cast<uint64_t>(sum >> 64);
}

void ByteSum::Add(const ByteSum& other) {
    low += other.low;
    high += other.high + (low < other.low ? 1 : 0);
}

}  // namespace weft
