// Chooses which unproved caller to drop when another one arrives.
#include "cluster/pending_limit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace weft::cluster {
namespace {

TEST(Crowd, NetworksAreAddressesOfIPv4AndCustomersOfIPv6) {
    EXPECT_EQ(NetworkOf("10.0.0.1:7000"), "10.0.0.1");
    EXPECT_EQ(NetworkOf("[fd00:1:2:3::1]:7000"), "fd00:1:2:3");
    EXPECT_EQ(NetworkOf("[fd00:1:2:3:ffff::9]:9"), NetworkOf("[fd00:1:2:3::1]:7000"));
    EXPECT_NE(NetworkOf("[fd00:1:2:4::1]:7000"), NetworkOf("[fd00:1:2:3::1]:7000"));
    EXPECT_EQ(NetworkOf(""), "");
}

// Callers that may be dropped, over many draws.
std::set<size_t> MayGo(const std::vector<Unproved>& callers) {
    std::minstd_rand dice(7);
    std::set<size_t> gone;
    for (int i = 0; i < 2000; ++i) gone.insert(PickEvictee(callers, dice));
    return gone;
}

TEST(Crowd, TheLargestLosesOneAndWhoHasSpokenStays) {
    const std::vector<Unproved> one_address = {
        {"10.0.0.1:1", false}, {"10.0.0.2:1", true}, {"10.0.0.2:2", false}, {"10.0.0.2:3", false}};
    EXPECT_EQ(MayGo(one_address), (std::set<size_t>{2, 3}));
    // One connection per address: the first that spoke is the oldest, and stays.
    std::vector<Unproved> many = {{"10.0.0.1:1", true}};
    for (int i = 0; i < 20; ++i) many.push_back({fmt::format("10.0.1.{}:1", i), false});
    EXPECT_FALSE(MayGo(many).contains(0));
    EXPECT_EQ(MayGo(many).size(), 20u);
    // If all have spoken, any may be dropped.
    for (Unproved& caller : many) caller.spoke = true;
    EXPECT_EQ(MayGo(many).size(), 21u);
    EXPECT_EQ(MayGo({{"10.0.0.1:1", true}}), std::set<size_t>{0});
}

TEST(Crowd, AnIPv6NetworkIsOne) {
    std::vector<Unproved> callers = {{"10.0.0.1:1", false}, {"[fd00:9::1]:1", false}};
    for (int i = 0; i < 5; ++i) callers.push_back({fmt::format("[fd00::{:x}]:1", i), true});
    EXPECT_EQ(MayGo(callers), (std::set<size_t>{2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace weft::cluster
