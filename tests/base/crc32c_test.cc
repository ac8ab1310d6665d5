// CRC-32C: the examples of RFC 3720, and every length, start and division of a message against the
// portable form.
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace weft {
namespace {

TEST(Crc32c, GivesTheExamplesOfRfc3720) {
    std::vector<std::byte> data(32);
    EXPECT_EQ(0x8a9136aau, Crc32c(data));
    std::fill(data.begin(), data.end(), std::byte{0xff});
    EXPECT_EQ(0x62a8ab43u, Crc32c(data));
    for (size_t i = 0; i < data.size(); i++) data[i] = static_cast<std::byte>(i);
    EXPECT_EQ(0x46dd794eu, Crc32c(data));
    const std::string_view digits = "123456789";
    EXPECT_EQ(0xe3069283u, Crc32c(std::as_bytes(std::span(digits))));
    EXPECT_EQ(0xe3069283u, Crc32cPortable(std::as_bytes(std::span(digits))));
    EXPECT_EQ(0u, Crc32c({}));
}

TEST(Crc32c, EveryLengthStartAndDivisionGivesThePortableResult) {
    std::mt19937 random(7);
    std::vector<std::byte> data(40'000);
    for (std::byte& byte : data) byte = static_cast<std::byte>(random());
    for (int round = 0; round < 2'000; round++) {
        const size_t begin = random() % 64;
        const size_t most = round % 2 == 0 ? 200 : data.size() - begin;
        const std::span<const std::byte> part = std::span(data).subspan(begin, random() % most);
        const uint32_t whole = Crc32cPortable(part);
        ASSERT_EQ(whole, Crc32c(part)) << begin << " + " << part.size();
        const size_t cut = part.empty() ? 0 : random() % part.size();
        ASSERT_EQ(whole, Crc32c(part.subspan(cut), Crc32c(part.first(cut)))) << cut;
    }
}

}  // namespace
}  // namespace weft
