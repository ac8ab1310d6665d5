// The sum of a file's bytes: its definition, any parts in any order, and changed bits.
#include "base/byte_sum.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace weft {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
}

// The values of the sum's definition in Python's integers, over windows and at odd places.
TEST(ByteSum, IsTheSumOfItsDefinition) {
    std::string text;
    for (int i = 0; i < 10'000; ++i) text += static_cast<char>((i * 7 + i / 256 * 13 + 5) % 256);
    const auto sum = [](uint64_t place, std::string_view bytes) {
        ByteSum made;
        made.Add(place, Bytes(bytes));
        return made;
    };
    EXPECT_EQ(sum(0, text), (ByteSum{0x9509a7563bb0516a, 0xfdd9bbb02434df4a}));
    EXPECT_EQ(sum(3, "abc"), (ByteSum{0x74fed7e72b000000, 0x8ed7e5667826cdb4}));
    EXPECT_EQ(sum(70'000'000'001, "abc"), (ByteSum{0x083d2ba875dabc00, 0x3ad536931f467be8}));
}

TEST(ByteSum, IsTheSumOfPartsInAnyOrder) {
    std::mt19937 random(7);
    std::string text(9'000, '\0');
    for (char& byte : text) byte = static_cast<char>(random());
    constexpr uint64_t kPlace = 4'090;
    ByteSum whole;
    whole.Add(kPlace, Bytes(text));
    for (const size_t step : {1u, 3u, 8u, 13u, 4'096u, 5'000u}) {
        ByteSum parts;
        for (size_t end = text.size(); end > 0;) {  // the last part first
            const size_t begin = (end - 1) / step * step;
            ByteSum part;
            part.Add(kPlace + begin, Bytes(std::string_view(text).substr(begin, end - begin)));
            parts.Add(part);
            end = begin;
        }
        EXPECT_EQ(parts, whole) << step;
    }
}

TEST(ByteSum, SeesEveryBitAndEveryOrder) {
    std::string text(29, 'x');
    const auto sum = [&] {
        ByteSum made;
        made.Add(5, Bytes(text));
        return std::pair(made.high, made.low);
    };
    std::set<std::pair<uint64_t, uint64_t>> seen{sum()};
    for (size_t bit = 0; bit < text.size() * 8; ++bit) {
        for (size_t other = bit; other < text.size() * 8; other += 7) {  // one or two bits
            text[bit / 8] ^= static_cast<char>(1 << bit % 8);
            if (other != bit) text[other / 8] ^= static_cast<char>(1 << other % 8);
            EXPECT_TRUE(seen.insert(sum()).second) << bit << " " << other;
            text[bit / 8] ^= static_cast<char>(1 << bit % 8);
            if (other != bit) text[other / 8] ^= static_cast<char>(1 << other % 8);
        }
    }
    std::swap(text[0] = 'a', text[28]);
    EXPECT_TRUE(seen.insert(sum()).second);
}

}  // namespace
}  // namespace weft
