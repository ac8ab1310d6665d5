// The times at which a wait changes from spinning to yielding and to sleeping.
#include "net/wait_policy.h"

#include <gtest/gtest.h>

#include <optional>

namespace weft::net {
namespace {

const OpTag kPatienceTag{"barrier", 1, 2};
constexpr int64_t kUs = 1000;

// A link that nothing ever arrives over.
class SilentLink final : public BaseLink {
  public:
    SilentLink() : BaseLink(PeerName{1, "b", "none"}) {}
    size_t window_bytes() const override { return 0; }
    std::span<std::byte> window() override { return {}; }
    uint64_t flag(int) const override { return 0; }
    Status Put(size_t, std::span<const std::byte>, std::span<const std::byte>, int, uint64_t,
               const OpTag&, const Deadline&) override {
        return {};
    }
    Status Wait(int, uint64_t, const OpTag&, const Deadline&) override { return {}; }
    void Receive() override {}
    int poll_fd() const override { return -1; }
};

// The stage of a wait that has lasted between `from_us` and `to_us`. Tried again where the machine
// was too busy for that.
std::optional<Stage> StageAt(int64_t from_us, int64_t to_us, bool crowded, int64_t awake_ns) {
    SilentLink link;
    const Deadline deadline = Deadline::In(60'000);
    for (int attempt = 0; attempt < 1000; ++attempt) {
        Progress progress;
        if (crowded) progress.SetCrowded(NowNs());
        Waiter waiter(progress, link, kPatienceTag, deadline, awake_ns);
        while (waiter.waited_ns() < from_us * kUs) continue;
        EXPECT_TRUE(waiter.Check().ok());
        if (waiter.waited_ns() < to_us * kUs) return waiter.Next();
    }
    return std::nullopt;
}

TEST(Waiter, SpinsThenYieldsThenSleeps) {
    EXPECT_EQ(Stage::kSpin, StageAt(0, 20, false, 0));
    EXPECT_EQ(Stage::kYield, StageAt(25, 2000, false, 0));
    EXPECT_EQ(Stage::kSleep, StageAt(2010, 50'000, false, 0));
}

TEST(Waiter, IsShortInACrowd) {
    EXPECT_EQ(Stage::kYield, StageAt(0, 100, true, 0));
    EXPECT_EQ(Stage::kSleep, StageAt(110, 50'000, true, 0));
}

TEST(Waiter, StaysAwakeAsLongAsALinkAsksFor) {
    EXPECT_EQ(Stage::kYield, StageAt(150, 1000, true, 1000 * kUs));
    EXPECT_EQ(Stage::kSleep, StageAt(1010, 50'000, true, 1000 * kUs));
    // But no longer than without a crowd, and a crowd's time at least.
    EXPECT_EQ(Stage::kSleep, StageAt(2010, 50'000, true, 60'000'000 * kUs));
    EXPECT_EQ(Stage::kYield, StageAt(50, 100, true, 1));
}

}  // namespace
}  // namespace weft::net
