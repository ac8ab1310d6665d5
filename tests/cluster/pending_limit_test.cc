// Chooses which unproved caller to drop when another one arrives.
#include "cluster/worker/pending_limit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "net/addresses.h"

namespace weft::cluster {
namespace {

TEST(Crowd, NetworksAreAddressesOfIPv4AndCustomersOfIPv6) {
    EXPECT_EQ(net::NetworkOf("10.0.0.1:7000"), "10.0.0.1");
    EXPECT_EQ(net::NetworkOf("[fd00:1:2:3::1]:7000"), "fd00:1:2:3");
    EXPECT_EQ(net::NetworkOf("[fd00:1:2:3:ffff::9]:9"), net::NetworkOf("[fd00:1:2:3::1]:7000"));
    EXPECT_NE(net::NetworkOf("[fd00:1:2:4::1]:7000"), net::NetworkOf("[fd00:1:2:3::1]:7000"));
    EXPECT_EQ(net::NetworkOf(""), "");
}

// Callers that are dropped in any of many draws, with places for `silent` and `speaking` ones.
std::set<size_t> MayGo(const std::vector<Unproved>& callers, size_t silent, size_t speaking) {
    PendingLimit limit(silent, speaking);
    std::set<size_t> gone;
    for (int i = 0; i < 2000; ++i) {
        const auto dropped = limit.Excess(callers);
        if (dropped.has_value()) gone.insert(*dropped);
    }
    return gone;
}

TEST(Crowd, LargestNetworkLosesASilentConnection) {
    const std::vector<Unproved> callers = {
        {"10.0.0.1", false}, {"10.0.0.2", true}, {"10.0.0.2", false}, {"10.0.0.2", false}};
    EXPECT_EQ(MayGo(callers, 2, 1), (std::set<size_t>{2, 3}));
    EXPECT_TRUE(MayGo(callers, 3, 1).empty());
    // One that speaks stays, and does not count, however many are silent and from wherever.
    std::vector<Unproved> many = {{"10.0.0.1", true}};
    std::vector<std::string> names;
    for (int i = 0; i < 20; ++i) names.push_back(fmt::format("10.0.1.{}", i));
    for (const std::string& name : names) many.push_back({name, false});
    EXPECT_FALSE(MayGo(many, 19, 1).contains(0));
    EXPECT_EQ(MayGo(many, 19, 1).size(), 20u);
    EXPECT_TRUE(MayGo(many, 20, 1).empty());
}

TEST(Crowd, AmongThoseThatSpeakOnlyTheLargestNetworkLosesOne) {
    std::vector<Unproved> callers = {{"10.0.0.1", true}, {"10.0.0.3", false}};
    for (int i = 0; i < 5; ++i) callers.push_back({"fd00:0:0:0", true});
    EXPECT_EQ(MayGo(callers, 1, 5), (std::set<size_t>{2, 3, 4, 5, 6}));
    EXPECT_EQ(MayGo({{"10.0.0.1", true}, {"10.0.0.2", true}}, 1, 1), (std::set<size_t>{0, 1}));
}

TEST(Crowd, ANetworksHellosOfAPeriodAreLimitedUnlessTheKeyIsProved) {
    PendingLimit limit(1, 1);
    int64_t now = 5'000'000'000;
    for (int i = 0; i < kMostHellos; ++i) {
        ASSERT_TRUE(limit.TakeHello("10.0.0.1", now, false)) << i;
        now += kHelloPeriodNs / kMostHellos - 1;
    }
    EXPECT_FALSE(limit.TakeHello("10.0.0.1", now, false));
    EXPECT_TRUE(limit.TakeHello("10.0.0.2", now, false));
    now += kHelloPeriodNs;
    for (int i = 0; i < 3 * kMostHellos; ++i) {
        ASSERT_TRUE(limit.TakeHello("10.0.0.1", now, false)) << i;
        limit.ReturnHello("10.0.0.1");
    }
    limit.ReturnHello("10.0.0.9");
    EXPECT_TRUE(limit.TakeHello("10.0.0.9", now, false));
}

// Another network is served; a peer of the crowd's own is too, after a few calls.
TEST(Crowd, ABusyListenerRefusesMostHellosOfANetworkThatSentSome) {
    PendingLimit limit(1, 1);
    const int64_t now = 5'000'000'000;
    for (int i = 0; i < kFewHellos; ++i) ASSERT_TRUE(limit.TakeHello("10.0.0.1", now, true)) << i;
    int answered = 0;
    for (int i = 0; i < 60; ++i) answered += limit.TakeHello("10.0.0.1", now, true) ? 1 : 0;
    EXPECT_GT(answered, 1);
    EXPECT_LT(answered, 36);
    EXPECT_TRUE(limit.TakeHello("10.0.0.1", now, false));
    EXPECT_TRUE(limit.TakeHello("10.0.0.2", now, true));
}

}  // namespace
}  // namespace weft::cluster
