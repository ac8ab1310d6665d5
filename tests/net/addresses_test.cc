// The choice of the addresses by which one host reaches another.
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
    // The slower end of a network counts; among equal ones, the address known to work comes first.
    const Addresses slow = {{"192.168.1.5", 24, "lan", 1000}, {"10.0.12.1", 24, "c12", 100}};
    EXPECT_EQ(Dialled(slow, b), (std::vector<std::string>{"192.168.1.6", "10.0.12.2"}));
    const Addresses equal = {{"192.168.1.6", 24, "lan", 0}, {"10.0.12.2", 24, "c12", 0}};
    EXPECT_EQ(Dialled(a, equal, "10.0.12.2").front(), "10.0.12.2");
    EXPECT_EQ(Dialled(a, equal, "192.168.1.6").front(), "192.168.1.6");
}

// Wi-Fi reports no speed: it is not taken for a cable.
TEST(Addresses, ACableComesBeforeWifi) {
    HostAddress wifi_a = {"192.168.1.5", 24, "wlan0", 0}, wifi_b = {"192.168.1.6", 24, "wlan0", 0};
    wifi_a.wireless = wifi_b.wireless = true;
    for (const int mbps : {0, 100}) {
        const Addresses a = {wifi_a, {"10.0.0.1", 24, "eth0", mbps}};
        const Addresses b = {wifi_b, {"10.0.0.2", 24, "eth0", mbps}};
        const std::vector<std::string> wanted = {"10.0.0.2", "192.168.1.6"};
        EXPECT_EQ(Dialled(a, b, "192.168.1.6"), wanted);
        EXPECT_EQ(Dialled(*UnpackAddresses(PackAddresses(a)), *UnpackAddresses(PackAddresses(b)),
                          "192.168.1.6"),
                  wanted);
    }
}

TEST(Addresses, WhatBothHaveLeadsNowhere) {
    const Addresses a = {{"172.17.0.1", 16, "docker0", 0, true}, {"10.0.0.1", 24, "eth0", 1000}};
    const Addresses b = {{"172.17.0.1", 16, "docker0", 0, true}, {"10.0.0.2", 24, "eth0", 1000}};
    EXPECT_EQ(Dialled(a, b), (std::vector<std::string>{"10.0.0.2"}));
    EXPECT_EQ(Dialled(a, b, "172.17.0.1"), (std::vector<std::string>{"10.0.0.2"}));
    // A bridge comes after all that are not bridges, whatever speed it reports.
    const Addresses c = {{"172.17.0.9", 16, "docker0", 100'000, true},
                         {"10.0.0.2", 24, "eth0", 1000}};
    EXPECT_EQ(Dialled(a, c), (std::vector<std::string>{"10.0.0.2", "172.17.0.9"}));
}

TEST(Addresses, WithoutACommonSubnetTheKnownOneComesBeforeTheRest) {
    const Addresses a = {{"10.0.1.1", 24, "eth0", 1000}};
    const Addresses b = {{"10.0.3.3", 24, "eth1", 1000}, {"10.0.2.2", 24, "eth0", 1000}};
    EXPECT_EQ(Dialled(a, b, "10.0.2.2"), (std::vector<std::string>{"10.0.2.2", "10.0.3.3"}));
    // So is an address that only others know (forwarded ports).
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
    EXPECT_LE(ListHostAddresses()->size(), kMostAddresses);
}

// Naming WireGuard's address requests encrypted data, although the network beneath is faster.
TEST(Addresses, ANamedTunnelComesFirst) {
    const HostAddress lan_a = {"192.168.1.11", 24, "eth0", 2500};
    const HostAddress lan_b = {"192.168.1.10", 24, "eth0", 2500};
    for (const int prefix : {24, 32}) {
        const Addresses a = {lan_a, {"10.9.0.2", prefix, "wg0", 0}};
        const Addresses b = {lan_b, {"10.9.0.1", prefix, "wg0", 0, false, true}};
        EXPECT_EQ(Dialled(a, b, "10.9.0.1"),
                  (std::vector<std::string>{"10.9.0.1", "192.168.1.10"}));
        EXPECT_EQ(Dialled(a, b, "192.168.1.10").front(), "192.168.1.10");
    }
    // A routed address of the host itself, without any tunnel.
    const Addresses routed = {lan_b, {"10.255.0.1", 32, "lo", 0}};
    EXPECT_EQ(Dialled({lan_a}, routed, "10.255.0.1").front(), "10.255.0.1");
    EXPECT_EQ(Dialled({lan_a}, routed, "192.168.1.10").front(), "192.168.1.10");
}

// A host of virtual machines has its network on a bridge.
TEST(Addresses, ANamedBridgeIsANetworkLikeOthers) {
    const Addresses a = {{"192.168.1.11", 24, "vmbr0", 2500, true}, {"10.147.1.2", 24, "zt0", 10}};
    const Addresses b = {{"192.168.1.10", 24, "vmbr0", 2500, true}, {"10.147.1.1", 24, "zt0", 10}};
    EXPECT_EQ(Dialled(a, b, "192.168.1.10"),
              (std::vector<std::string>{"192.168.1.10", "10.147.1.1"}));
    EXPECT_EQ(Dialled(a, b, "10.147.1.1").front(), "10.147.1.1");
}

TEST(Addresses, TheFastestLinkLocalPairsComeFirstAndEachInterfaceHasItsTurn) {
    const Addresses a = {
        {"fe80::a", 64, "a1", 1000}, {"fe80::b", 64, "a2", 1000}, {"fe80::c", 64, "a3", 100'000}};
    const Addresses b = {
        {"fe80::1", 64, "b1", 1000}, {"fe80::2", 64, "b2", 1000}, {"fe80::3", 64, "b3", 100'000}};
    const std::vector<Way> ways = WaysFrom(a, b, "");
    ASSERT_EQ(ways.size(), 9u);
    EXPECT_EQ(ways[0], (Way{"fe80::3%b3", "fe80::3%a3"}));
    EXPECT_EQ(ways[1], (Way{"fe80::1%b1", "fe80::1%a1"}));
    EXPECT_EQ(ways[2], (Way{"fe80::2%b2", "fe80::2%a2"}));
    std::vector<std::string> next;
    std::ranges::sort(next = Dialled(a, b));
    EXPECT_EQ(std::ranges::unique(next).begin(), next.end());
}

// The selection considers all addresses; it omits those of containers' devices.
TEST(Addresses, OfTooManyTheVirtualOnesAreLeftOut) {
    Addresses all;
    for (int i = 0; i < 40; ++i) {
        const std::string name = "v" + std::to_string(i);
        all.push_back({"10.1." + std::to_string(i) + ".1", 24, name, 0, i % 2 == 0, false, true});
    }
    all.push_back({"10.0.0.1", 24, "eth0", 1000});
    all.push_back({"fd00:1::1", 64, "cable", 100'000});
    all.push_back({"fe80::1", 64, "cable", 100'000});
    EXPECT_EQ(OnDataNet(all, "cable").value(), (Addresses{all[41], all[42]}));
    EXPECT_EQ(OnDataNet(all, "10.1.33.0/24").value(), (Addresses{all[33]}));
    const Addresses best = OnDataNet(all, "").value();
    EXPECT_EQ(best.size(), kMostAddresses);
    EXPECT_EQ(best[0], all[40]);
    EXPECT_EQ(best[1], all[41]);
    for (const HostAddress& address : best) EXPECT_FALSE(address.bridge);
    EXPECT_EQ(OnDataNet(all, "10.1.0.0/16")->size(), kMostAddresses);
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
         {"10.0.1.5 24 eth0 0 0", "10.0.1.5 24 eth0 0 4 -\n", "10.0.1 24 eth0 0 0 -\n",
          "10.0.1.5 129 eth0 0 0 -\n", "10.0.1.5 24  0 0 -\n", "10.0.1.5 24 eth0 0 0 - 0\n", "\n",
          "10.0.1.5 24 eth0 -1 0 -\n", "name 24 eth0 0 0 -\n", "fe80::1 64 eth0 0 0 x\n",
          "fe80::1 64 eth0 0 0 ,fe80::2\n", "fe80::1 64 eth0 0 0 10.0.0.1\n"}) {
        EXPECT_FALSE(UnpackAddresses(wrong).ok()) << wrong;
    }
    EXPECT_TRUE(UnpackAddresses("10.0.1.5 24 eth0 0 0 -\n").ok());
    std::string many, crowd = "fe80::1 64 eth0 0 0 fe80::2";
    for (size_t i = 0; i <= kMostAddresses; ++i) many += "10.0.1.5 24 eth0 0 0 -\n";
    EXPECT_FALSE(UnpackAddresses(many).ok());
    EXPECT_FALSE(UnpackAddresses("10.0.1.5 24 " + std::string(65, 'x') + " 0 0 -\n").ok());
    for (size_t i = 1; i < kMostNeighbours; ++i) crowd += ",fe80::2";
    EXPECT_TRUE(UnpackAddresses(crowd + "\n").ok());
    EXPECT_FALSE(UnpackAddresses(crowd + ",fe80::3\n").ok());
}

// Two cables and a slow network that all share, as mini PCs have them: received beacons tell which
// link-local address leads to which host.
TEST(Addresses, CablesWithoutAddressesAreMatchedByBeacons) {
    Addresses a = {{"192.168.1.1", 24, "wlan0", 600},
                   {"fe80::a1", 64, "eth1", 10'000},
                   {"fe80::a2", 64, "eth2", 20'000}};
    const Addresses b = {{"192.168.1.2", 24, "wlan0", 600},
                         {"fe80::b5", 64, "eth5", 10'000},
                         {"fe80::b6", 64, "eth6", 20'000}};
    // Nothing is known: the network with addresses.
    EXPECT_EQ(Dialled(a, b), (std::vector<std::string>{"192.168.1.2"}));
    const std::vector<Neighbour> heard =
        ParseNeighbours("eth1=fe80::b5,eth2=fe80::c9,wlan0=fe80::99").value();
    AddNeighbours(heard, a);
    EXPECT_EQ(a[0].neighbours, std::vector<std::string>());
    EXPECT_EQ(a[1].neighbours, std::vector<std::string>{"fe80::b5"});
    // eth1 leads to b's eth5; eth2, though faster, to c. One end that heard the other is enough.
    EXPECT_EQ(Dialled(a, b), (std::vector<std::string>{"fe80::b5%eth1", "192.168.1.2"}));
    EXPECT_EQ(Dialled(b, a), (std::vector<std::string>{"fe80::a1%eth5", "192.168.1.1"}));
    EXPECT_EQ(WaysFrom(a, b, "")[0].listen, "fe80::b5%eth5");
    EXPECT_TRUE(CommonNetwork(a, b).has_value());
    EXPECT_EQ(UnpackAddresses(PackAddresses(a)).value(), a);
    // A cable slower than the network comes after it.
    a[1].speed_mbps = 100;
    EXPECT_EQ(Dialled(a, b), (std::vector<std::string>{"192.168.1.2", "fe80::b5%eth1"}));
}

TEST(Addresses, NeighboursAreWords) {
    const std::string text = "eth1=fe80::1,eth1=fe80::2,usb0=fe80::3";
    EXPECT_EQ(NeighboursText(ParseNeighbours(text).value()), text);
    EXPECT_TRUE(ParseNeighbours("").value().empty());
    std::string many = "e=fe80::1";
    for (size_t i = 0; i < kMostNeighbours; ++i) many += ",e=fe80::1";
    for (const std::string& wrong :
         std::vector<std::string>{"eth1", "=fe80::1", "eth1=", "e=x", "e=10.0.0.1", ",", many}) {
        EXPECT_EQ(ParseNeighbours(wrong).error().code, ErrorCode::kUsage) << wrong;
    }
}

}  // namespace
}  // namespace weft::net
