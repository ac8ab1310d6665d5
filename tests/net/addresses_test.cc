// By which address one host reaches another.
#include "net/addresses.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft::net {
namespace {

using Addresses = std::vector<HostAddress>;

std::vector<std::string> Dialled(const Addresses& theirs, const Addresses& mine,
                                 const std::string& known = "") {
    std::vector<std::string> hosts;
    for (const Way& way : WaysFrom(theirs, mine, known)) hosts.push_back(way.dial);
    return hosts;
}

TEST(Addresses, ACommonSubnetComesFirstAndTheFastestBeforeOthers) {
    const Addresses a = {{"192.168.1.5", 24, "lan", 1000},
                         {"10.0.12.1", 24, "c12", 100'000},
                         {"10.0.13.1", 24, "c13", 100'000}};
    const Addresses b = {{"192.168.1.6", 24, "lan", 1000}, {"10.0.12.2", 24, "c12", 100'000}};
    EXPECT_EQ(Dialled(a, b), (std::vector<std::string>{"10.0.12.2", "192.168.1.6"}));
    // The slower of both ends counts; of equals the one that is known to work.
    const Addresses slow = {{"192.168.1.5", 24, "lan", 1000}, {"10.0.12.1", 24, "c12", 100}};
    EXPECT_EQ(Dialled(slow, b), (std::vector<std::string>{"192.168.1.6", "10.0.12.2"}));
    const Addresses equal = {{"192.168.1.6", 24, "lan", 0}, {"10.0.12.2", 24, "c12", 0}};
    EXPECT_EQ(Dialled(a, equal, "10.0.12.2").front(), "10.0.12.2");
    EXPECT_EQ(Dialled(a, equal, "192.168.1.6").front(), "192.168.1.6");
}

TEST(Addresses, WhatBothHaveLeadsNowhere) {
    const Addresses a = {{"172.17.0.1", 16, "docker0", 0, true}, {"10.0.0.1", 24, "eth0", 1000}};
    const Addresses b = {{"172.17.0.1", 16, "docker0", 0, true}, {"10.0.0.2", 24, "eth0", 1000}};
    EXPECT_EQ(Dialled(a, b), (std::vector<std::string>{"10.0.0.2"}));
    EXPECT_EQ(Dialled(a, b, "172.17.0.1"), (std::vector<std::string>{"10.0.0.2"}));
    // A bridge comes behind whatever is none, however fast it says that it is.
    const Addresses c = {{"172.17.0.9", 16, "docker0", 100'000, true},
                         {"10.0.0.2", 24, "eth0", 1000}};
    EXPECT_EQ(Dialled(a, c), (std::vector<std::string>{"10.0.0.2", "172.17.0.9"}));
}

TEST(Addresses, WithoutACommonSubnetTheKnownOneComesBeforeTheRest) {
    const Addresses a = {{"10.0.1.1", 24, "eth0", 1000}};
    const Addresses b = {{"10.0.3.3", 24, "eth1", 1000}, {"10.0.2.2", 24, "eth0", 1000}};
    EXPECT_EQ(Dialled(a, b, "10.0.2.2"), (std::vector<std::string>{"10.0.2.2", "10.0.3.3"}));
    // One that only others know (forwarded ports), too.
    EXPECT_EQ(Dialled(a, b, "203.0.113.7").front(), "203.0.113.7");
    EXPECT_TRUE(Dialled(a, {}).empty());
}

TEST(Addresses, SubnetsAreOfOneFamilyAndOfMoreThanOneAddress) {
    const Addresses a = {{"fd00:1::1", 64, "c", 0}, {"10.1.1.1", 32, "ptp", 0}};
    const Addresses b = {
        {"fd00:1::2", 64, "c", 0}, {"10.1.1.1", 32, "ptp", 0}, {"10.1.1.2", 32, "ptp", 0}};
    EXPECT_EQ(Dialled(a, b), (std::vector<std::string>{"fd00:1::2", "10.1.1.2"}));
    // Each side's own mask must hold the other.
    const Addresses wide = {{"10.0.0.1", 8, "w", 0}}, narrow = {{"10.9.9.9", 24, "n", 0}};
    EXPECT_EQ(Dialled(wide, narrow, "10.9.9.9"), (std::vector<std::string>{"10.9.9.9"}));
}

TEST(Addresses, LinkLocalOnesGoWithTheDiallersInterfaceAndOnlyWhereThereIsNothingBetter) {
    const Addresses a = {{"fe80::a", 64, "enp1", 0}, {"fe80::b", 64, "enp2", 0}};
    const Addresses b = {{"fe80::c", 64, "eth9", 0}};
    const std::vector<Way> ways = WaysFrom(a, b, "");
    EXPECT_EQ(ways, (std::vector<Way>{{"fe80::c%eth9", "fe80::c%enp1"},
                                      {"fe80::c%eth9", "fe80::c%enp2"}}));
    Addresses more_a = a, more_b = b;
    more_a.push_back({"10.0.0.1", 24, "enp1", 0});
    more_b.push_back({"10.0.0.2", 24, "eth9", 0});
    EXPECT_EQ(Dialled(more_a, more_b), (std::vector<std::string>{"10.0.0.2"}));
}

TEST(Addresses, AreBounded) {
    Addresses many;
    for (int i = 0; i < 200; ++i) {
        many.push_back({"10.0." + std::to_string(i) + ".1", 24, "e" + std::to_string(i), 0});
        many.push_back({"fe80::" + std::to_string(i), 64, "e" + std::to_string(i), 0});
    }
    EXPECT_LE(WaysFrom(many, many, "").size(), kMostWays);
    Addresses others = many;
    for (HostAddress& other : others) other.host += other.link_local() ? "f" : "2";
    EXPECT_LE(WaysFrom(many, others, "").size(), kMostWays);
    EXPECT_LE(ListHostAddresses().size(), kMostAddresses);
}

TEST(Addresses, TheDataNetIsByNetworkOrInterface) {
    const Addresses all = {
        {"10.0.1.5", 24, "eth0", 0}, {"10.0.2.5", 24, "eth1", 0}, {"fd00::5", 64, "eth1", 0}};
    const auto hosts = [&](std::string_view words) {
        std::string text;
        const auto on = OnDataNet(all, words);
        if (!on.ok()) return on.error().message;
        for (const HostAddress& address : *on) text += address.host + " ";
        return text;
    };
    EXPECT_EQ(hosts(""), "10.0.1.5 10.0.2.5 fd00::5 ");
    EXPECT_EQ(hosts("10.0.2.0/24"), "10.0.2.5 ");
    EXPECT_EQ(hosts("10.0.0.0/16"), "10.0.1.5 10.0.2.5 ");
    EXPECT_EQ(hosts("eth1"), "10.0.2.5 fd00::5 ");
    EXPECT_EQ(hosts("fd00::/8,eth0"), "10.0.1.5 fd00::5 ");
    EXPECT_NE(hosts("10.9.0.0/16").find("It has: 10.0.1.5/24 on eth0, "), std::string::npos);
    for (const char* wrong : {"10.0.0.0/33", "10.0.0/24", "/24", ",", "eth0,", "fd00::/129",
                              "10.0.0.0/-1", "10.0.0.0/8x"}) {
        EXPECT_EQ(CheckDataNet(wrong).ok(), std::string_view(wrong) == "eth0,") << wrong;
    }
}

TEST(Addresses, TravelAndNothingElseDoes) {
    const Addresses all = {{"10.0.1.5", 24, "eth0", 25'000}, {"fe80::1", 64, "br0", 0, true}};
    const std::string packed = PackAddresses(all);
    EXPECT_EQ(UnpackAddresses(packed).value(), all);
    EXPECT_EQ(UnpackAddresses("").value(), Addresses());
    for (const char* wrong :
         {"10.0.1.5 24 eth0 0", "10.0.1.5 24 eth0 0 2\n", "10.0.1 24 eth0 0 0\n",
          "10.0.1.5 129 eth0 0 0\n", "10.0.1.5 24  0 0\n", "10.0.1.5 24 eth0 0 0 0\n", "\n",
          "10.0.1.5 24 eth0 -1 0\n", "name 24 eth0 0 0\n"}) {
        EXPECT_FALSE(UnpackAddresses(wrong).ok()) << wrong;
    }
    std::string many;
    for (size_t i = 0; i <= kMostAddresses; ++i) many += "10.0.1.5 24 eth0 0 0\n";
    EXPECT_FALSE(UnpackAddresses(many).ok());
    EXPECT_FALSE(UnpackAddresses("10.0.1.5 24 " + std::string(65, 'x') + " 0 0\n").ok());
}

}  // namespace
}  // namespace weft::net
