// Copies into a peer's memory: complete, and nothing outside the range, for every method.
#include "net/copy.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <vector>

namespace weft::net {
namespace {

TEST(PeerCopy, CopiesAllAndNothingElse) {
    constexpr size_t kMost = 40'000, kEdge = 128;
    std::mt19937 random(3);
    std::vector<std::byte> from(kMost), to(kMost + 2 * kEdge);
    for (std::byte& byte : from) byte = static_cast<std::byte>(random());
    const size_t sizes[] = {0, 1, 63, 64, 2047, 2048, 2049, 4095, 4096, 4097, 4160, 9000, kMost};
    std::optional<PeerCopy> copy(std::in_place);
    for (int round = 0; round < 2000; ++round) {
        // Between far cores the first two copies are probes, the others stream.
        if (round % 5 == 0) copy.emplace(round % 3 != 0);
        const size_t bytes = std::min(sizes[random() % std::size(sizes)] + random() % 3, kMost);
        const size_t at = kEdge / 2 + random() % 70;
        std::fill(to.begin(), to.end(), std::byte{0});
        copy->Copy(to.data() + at, from.data(), bytes);
        ASSERT_TRUE(std::equal(from.begin(), from.begin() + static_cast<ptrdiff_t>(bytes),
                               to.begin() + static_cast<ptrdiff_t>(at)))
            << bytes;
        for (size_t i = 0; i < to.size(); i = i + 1 == at ? at + bytes : i + 1) {
            ASSERT_TRUE(to[i] == std::byte{0}) << bytes << " bytes, at " << i;
        }
    }
}

}  // namespace
}  // namespace weft::net
