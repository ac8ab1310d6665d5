// Links between ranks: reports to rank 0, and the lines for the user.
#include "cluster/links.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/deadline.h"
#include "cluster/cluster_impl.h"
#include "cluster/frame.h"
#include "cluster/watch/path_fault.h"
#include "support/limits.h"

namespace weft::cluster {
namespace {

std::vector<net::WireEnd> EndsOfRankZero() {
    return {{},
            {"tcp", "10.0.1.1", "c01", 25'000, "", true},
            {"verbs", "10.0.2.1", "c02", 100'000, "mlx5_0:1"},
            {"shm", "", "", 0, ""}};
}

TEST(Links, ComeBackAsTheyWere) {
    const auto ends = EndsOfRankZero();
    const auto back = UnpackWireEnds(PackWireEnds(LinkRow(ends)), ends.size());
    ASSERT_TRUE(back.ok()) << back.error().message;
    for (size_t peer = 0; peer < ends.size(); ++peer) {
        EXPECT_EQ((*back)[peer].transport, ends[peer].transport);
        EXPECT_EQ((*back)[peer].address, ends[peer].address);
        EXPECT_EQ((*back)[peer].interface, ends[peer].interface);
        EXPECT_EQ((*back)[peer].speed_mbps, ends[peer].speed_mbps);
        EXPECT_EQ((*back)[peer].device, ends[peer].device);
        EXPECT_EQ((*back)[peer].encrypted, ends[peer].encrypted);
    }
    // The maximum size of a cluster, each with another interface; and a rank alone.
    std::vector<net::WireEnd> many(kMostRanks);
    for (size_t i = 0; i < many.size(); ++i) many[i].address = std::to_string(i);
    const auto all = UnpackWireEnds(PackWireEnds(LinkRow(many)), many.size());
    ASSERT_TRUE(all.ok());
    for (size_t i = 0; i < many.size(); ++i) EXPECT_EQ((*all)[i].address, std::to_string(i));
    EXPECT_TRUE(UnpackWireEnds(PackWireEnds(LinkRow()), 1).ok());
}

TEST(Links, WindowsOfARankHaveHalfAGigabyte) {
    constexpr size_t kUsual = size_t{4} << 20;
    EXPECT_EQ(WindowBytesFor({}, 2), kUsual);
    EXPECT_EQ(WindowBytesFor({}, 128), kUsual);
    EXPECT_EQ(WindowBytesFor({}, 256), kUsual / 2);
    EXPECT_EQ(WindowBytesFor({}, 4096), size_t{128} << 10);
    LinkNeeds ring;
    for (int rank = 0; rank < 4096; ++rank) ring.pairs.push_back({rank, (rank + 1) % 4096});
    EXPECT_EQ(WindowBytesFor(ring, 4096), kUsual);
    // 128 ranks on one machine have 4 GiB.
    EXPECT_EQ(WindowBytesFor({}, 8, true), kUsual);
    EXPECT_EQ(WindowBytesFor({}, 128, true), size_t{256} << 10);
    ring.spare = true;
    EXPECT_EQ(WindowBytesFor(ring, 4096), size_t{128} << 10);
}

TEST(Links, MalformedListsAreRejected) {
    const std::string good = PackWireEnds(LinkRow(EndsOfRankZero()));
    EXPECT_FALSE(UnpackWireEnds(good, 3).ok());
    for (size_t length = 0; length < good.size(); ++length) {
        EXPECT_FALSE(UnpackWireEnds(good.substr(0, length), 4).ok()) << length;
    }
    for (const char* line : {"tcp a b  d plain", "tcp a b -1 d plain", "tcp a b x d plain",
                             "tcp a b 99999999999 d plain", "tcp a b 1", "tcp a b 1 d",
                             "tcp a b 1 d e", "tcp a b 1 d ", "tcp a b 1 d plain e", "", " "}) {
        const std::string one = std::string(line) + "\n";
        EXPECT_FALSE(UnpackWireEnds(PackStrings({one, std::string(2, '\0')}), 1).ok()) << line;
    }
    const std::string fine = "tcp a b 1 d plain\n";
    EXPECT_TRUE(UnpackWireEnds(PackStrings({fine, std::string(2, '\0')}), 1).ok());
    EXPECT_FALSE(UnpackWireEnds(PackStrings({fine, std::string("\1\0", 2)}), 1).ok());
    EXPECT_FALSE(UnpackWireEnds(PackStrings({fine}), 1).ok());
}

TEST(Links, LineNamesBothEndsAndTheSlowerSpeed) {
    std::vector<std::vector<net::WireEnd>> links(3, std::vector<net::WireEnd>(3));
    links[0][1] = {"tcp", "10.0.1.1", "eth1", 25'000, "", true};
    links[1][0] = {"tcp", "10.0.1.2", "eth9", 10'000, "", true};
    links[0][2] = {"shm", "", "", 0, ""};
    links[2][0] = {"shm", "", "", 0, ""};
    links[1][2] = {"verbs", "fd00::2", "ib0", 0, "mlx5_0:1"};
    links[2][1] = {"verbs", "", "", 2500, "mlx5_1:1"};
    EXPECT_EQ(LinkLines(LinkTable(links.begin(), links.end()), {"a", "b", "c"}),
              (std::vector<std::string>{
                  "rank 0 (a) - rank 1 (b): tcp, encrypted, 10.0.1.1 (eth1) - 10.0.1.2 (eth9), "
                  "10 Gbit/s",
                  "rank 0 (a) - rank 2 (c): shm",
                  "rank 1 (b) - rank 2 (c): verbs, fd00::2 (ib0) mlx5_0:1 - ? mlx5_1:1, 2.5 "
                  "Gbit/s"}));
}

TEST(Links, JoinHosts) {
    const net::WireEnd tcp{"tcp", "10.0.1.1", "eth1", 0, ""};
    const LinkTable links = {LinkRow({{}, tcp}), LinkRow({tcp, {}})};
    EXPECT_TRUE(LinksHosts(links, {"a", "b"}, "tcp"));
    EXPECT_FALSE(LinksHosts(links, {"a", "b"}, "verbs"));
    EXPECT_FALSE(LinksHosts(links, {"a", "a"}, "tcp"));
    EXPECT_FALSE(LinksHosts({}, {}, "tcp"));
}

TEST(Links, OfOnePair) {
    const net::WireEnd one{"tcp", "10.0.1.1", "eth1", 25'000, ""}, shm{"shm", "", "", 0, ""};
    const net::WireEnd other_end{"tcp", "10.0.1.2", "eth9", 10'000, ""};
    const LinkTable links = {LinkRow({{}, {}, shm}), LinkRow({{}, {}, one}),
                             LinkRow({shm, other_end, {}})};
    EXPECT_EQ(LinkText(links, 1, 2), "tcp, 10.0.1.1 (eth1) - 10.0.1.2 (eth9)");
    EXPECT_EQ(LinkText(links, 2, 1), "tcp, 10.0.1.2 (eth9) - 10.0.1.1 (eth1)");
    EXPECT_EQ(LinkText(links, 0, 2), "");
    for (const int other : {-1, 3}) {
        EXPECT_EQ(LinkText(links, 1, other), "");
        EXPECT_EQ(LinkText(links, other, 1), "");
    }
    EXPECT_EQ(LinkText({}, 0, 1), "");
}

// Whether an undirected graph of ranks has an edge.
auto JoinedBy(const std::vector<std::pair<int, int>>& edges) {
    return [edges](int a, int b) {
        return std::ranges::count(edges, std::pair(std::min(a, b), std::max(a, b))) > 0;
    };
}

TEST(Links, AnOrderAlongTheCablesIsFound) {
    EXPECT_EQ(ChainOf(4, JoinedBy({{0, 1}, {1, 2}, {2, 3}})), (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(ChainOf(4, JoinedBy({{0, 1}, {1, 3}, {2, 3}})), (std::vector<int>{0, 1, 3, 2}));
    EXPECT_EQ(ChainOf(4, JoinedBy({{0, 1}, {0, 3}, {1, 2}, {2, 3}})),
              (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(ChainOf(1, JoinedBy({})), std::vector<int>{0});
    EXPECT_EQ(ChainOf(3, JoinedBy({{0, 1}, {0, 2}})), std::vector<int>());  // rank 0 in the middle
    // The search ends although each rank but the last one is joined to all others.
    std::vector<std::pair<int, int>> dense;
    for (int a = 0; a < 40; ++a) {
        for (int b = a + 1; b < 40; ++b) dense.emplace_back(a, b);
    }
    EXPECT_EQ(ChainOf(41, JoinedBy(dense)), std::vector<int>());
}

TEST(Links, TheLayoutsThatWorkAreNamed) {
    const auto said = [](const std::vector<std::pair<int, int>>& edges) {
        return LayoutsThatWork({"a", "b", "c", "d"}, JoinedBy(edges));
    };
    EXPECT_NE(said({{0, 1}, {1, 2}, {2, 3}}).find("--pp 4 works, because"), std::string::npos);
    EXPECT_NE(said({{0, 1}, {1, 3}, {2, 3}})
                  .find("--pp 4 works with the hosts in the order a, b, d, c, because"),
              std::string::npos);
    EXPECT_EQ(said({{0, 1}, {0, 2}, {0, 3}}), "--tp 2 or --pp 2 works with a, b alone");
    EXPECT_EQ(said({{0, 1}, {0, 2}, {1, 2}}), "--tp 3 or --pp 3 works with a, b, c alone");
    EXPECT_EQ(said({{1, 2}}), "");
}

// All ranks get the offers of all their peers, and no round has more bytes than a collective call
// may have.
TEST(Links, OffersOfARoundFitIntoOneCall) {
    for (const size_t ranks : {2u, 64u, 256u, 1024u, 4096u}) {
        LinkNeeds star;  // rank 0 with each other
        for (size_t rank = 1; rank < ranks; ++rank) {
            star.pairs.push_back({0, static_cast<int32_t>(rank)});
        }
        for (const LinkNeeds& links : {LinkNeeds(), star, LinkNeeds{star.pairs, true}}) {
            const bool all = links.pairs.empty() || links.spare;
            for (const size_t bytes : {300u, 1100u, 5000u, 16'000u}) {
                size_t begin = 0;
                for (const size_t end : OfferRounds(links, ranks, bytes)) {
                    ASSERT_GT(end, begin);
                    size_t offers = 0;
                    for (size_t rank = begin; rank < end; ++rank) {
                        offers += all || rank == 0 ? ranks - 1 : 1;
                    }
                    EXPECT_LE(offers * bytes, kMostMessage) << ranks << " " << bytes;
                    begin = end;
                }
                EXPECT_EQ(begin, ranks);
            }
        }
    }
    EXPECT_EQ(OfferRounds({}, 256, 300), (std::vector<size_t>{256}));
}

TEST(Links, TheFewestRanksAreDropped) {
    using Pairs = std::vector<std::pair<int, int>>;
    const auto dropped = [](const Pairs& pairs) { return RanksToDrop(pairs); };
    EXPECT_EQ(dropped({}), std::vector<int>());
    EXPECT_EQ(dropped({{2, 1}}), std::vector<int>{2});
    EXPECT_EQ(dropped({{1, 2}}), std::vector<int>{2});
    EXPECT_EQ(dropped({{1, 0}}), std::vector<int>{1});
    EXPECT_EQ(dropped({{0, 1}, {2, 0}}), (std::vector<int>{2, 1}));
    EXPECT_EQ(dropped({{1, 2}, {3, 1}}), std::vector<int>{1});  // rank 1 lost both of its cables
    EXPECT_EQ(dropped({{1, 2}, {3, 4}}), (std::vector<int>{4, 2}));
    EXPECT_EQ(dropped({{2, 1}, {3, 1}, {3, 2}}), (std::vector<int>{3, 2}));
    EXPECT_EQ(dropped({{0, 0}}), std::vector<int>());  // (reported by no rank)
}

// The network between the halves of a large job is out: rank 0 decides while all ranks wait.
TEST(Links, DecisionsAboutThousandsOfRanksTakeNoMinutes) {
    constexpr int kRanks = 3072, kHalf = kRanks / 2;
    std::vector<std::pair<int, int>> apart;
    for (int a = 0; a < kHalf; ++a) {
        for (int b = kHalf; b < kRanks; ++b) apart.emplace_back(a, b);
    }
    const int64_t begin_ns = NowNs();
    const std::vector<int> dropped = RanksToDrop(apart);
    ASSERT_EQ(dropped.size(), static_cast<size_t>(kHalf));
    EXPECT_EQ(dropped.front(), kRanks - 1);
    EXPECT_EQ(dropped.back(), kHalf);
    const auto ring = [](int a, int b) { return std::abs(a - b) == 1; };
    EXPECT_EQ(ChainOf(kRanks, ring).size(), static_cast<size_t>(kRanks));
    EXPECT_LT(NowNs() - begin_ns, test::LimitNs(300));
}

// An interface with an MTU below 1280 has no IPv6, over which hosts find each other.
TEST(Paths, NoCureTakesIpv6Away) {
    const auto cure = [](int passed) {
        return PathFaultText({"eth0", 9000, 9000, passed}, "", "");
    };
    EXPECT_NE(cure(1280).find("sudo ip link set dev eth0 mtu 1280"), std::string::npos);
    EXPECT_EQ(cure(576).find("ip link set"), std::string::npos) << cure(576);
    EXPECT_NE(cure(576).find("Raise it to 1280 or more"), std::string::npos) << cure(576);
}

}  // namespace
}  // namespace weft::cluster
