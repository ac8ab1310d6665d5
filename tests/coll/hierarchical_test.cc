// Hierarchical all_gather and reduce_scatter: the same bits as the flat algorithms for any
// placement of ranks on hosts, and the bytes sent between hosts.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <thread>

#include "coll/autotune.h"
#include "coll/comm.h"
#include "coll/hosts.h"
#include "support/limits.h"
#include "support/ranks.h"
#include "tensor/half.h"

namespace weft::coll {
namespace {

using net::Transport;

constexpr size_t kByHostsWindow = size_t{32} << 10;  // messages of 4 KB
constexpr size_t kByHostsMessage = 4032;
constexpr int64_t kByHostsTimeoutMs = 20'000;
const net::OpTag kHierarchicalTag{"hierarchical", 1, 2};

using HostsOfRanks = std::vector<int>;

bool SameBits(std::span<const float> a, std::span<const float> b) {
    return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

std::vector<HostsOfRanks> Layouts() {
    std::vector<HostsOfRanks> layouts{{0, 0, 1, 1},
                                      {0, 0, 1},
                                      {0, 1, 1},
                                      {0, 0, 0, 1, 2, 2},        // 3 + 1 + 2
                                      {0, 1, 0, 1},              // not side by side
                                      {0, 1, 1, 0, 2},           // a host's ranks apart
                                      {2, 2, 0, 0, 2, 2, 1, 1},  // in two runs
                                      {0, 0, 0, 0, 1, 1, 1, 1},
                                      {0, 0, 1, 1, 2, 2},
                                      {0, 1, 2},
                                      {7, 7, 7}};
    std::mt19937 random(5);
    for (int i = 0; i < 6; ++i) {
        HostsOfRanks hosts(3 + random() % 6);
        for (int& host : hosts) host = static_cast<int>(random() % 3);
        layouts.push_back(hosts);
    }
    return layouts;
}

std::string HostsText(const HostsOfRanks& hosts) {
    std::string text;
    for (int host : hosts) text += std::to_string(host);
    return text;
}

std::unique_ptr<Comm> CommOf(net::Fabric& fabric, int64_t timeout_ms = kByHostsTimeoutMs) {
    std::vector<int> everyone(static_cast<size_t>(fabric.size));
    std::iota(everyone.begin(), everyone.end(), 0);
    return Comm::Make(fabric, everyone, {.window_bytes = kByHostsWindow}, timeout_ms).value();
}

// Runs `body` on every rank of a layout, over local links; Comm is told these hosts.
void OnHosts(const HostsOfRanks& hosts, Transport transport,
             const std::function<void(Comm&, size_t me)>& body) {
    auto fabrics =
        net::MakeLocalFabrics(static_cast<int>(hosts.size()), transport, kByHostsWindow).value();
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        auto comm = CommOf(fabric);
        ASSERT_TRUE(comm->SetHosts(hosts).ok());
        body(*comm, static_cast<size_t>(fabric.rank));
    });
}

// Parts as they come: even, of unlike sizes and none, all with one rank, none at all. Some are
// longer than a message, or end with one.
std::vector<std::vector<size_t>> PartsOfMany(size_t ranks, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::vector<size_t>> all(7, std::vector<size_t>(ranks));
    for (size_t r = 0; r < ranks; ++r) {
        all[0][r] = 5;
        all[1][r] = random() % 3 == 0 ? 0 : random() % 3000;
        all[2][r] = r == ranks / 2 ? 7000 : 0;
        all[4][r] = kByHostsMessage / 4 * (1 + r % 3);
        all[5][r] = random() % 9000;
        all[6][r] = r + 1 == ranks ? 1 : 2500;
    }
    return all;
}

size_t Total(const std::vector<size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

// Sums of these depend on the order of additions.
float RoughValue(size_t rank, size_t at) {
    std::minstd_rand random(static_cast<uint32_t>(at * 131 + rank * 7919 + 3));
    random();
    const auto bits = random();
    return std::ldexp(static_cast<float>(bits % 65'537) - 32'768.0f,
                      static_cast<int>(bits >> 20 & 15) - 20);
}

class Hierarchical : public ::testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Transports, Hierarchical,
                         ::testing::Values(Transport::kShm, Transport::kTcp),
                         [](const auto& made) { return TransportName(made.param); });

TEST_P(Hierarchical, AGatherBringsEveryPartToAll) {
    for (const HostsOfRanks& hosts : Layouts()) {
        OnHosts(hosts, GetParam(), [&](Comm& comm, size_t me) {
            for (const auto& counts : PartsOfMany(hosts.size(), 11)) {
                std::vector<std::byte> right(Total(counts)), all(right.size());
                for (size_t r = 0, at = 0; r < counts.size(); at += counts[r++]) {
                    for (size_t i = 0; i < counts[r]; ++i) {
                        right[at + i] = static_cast<std::byte>(r * 41 + i % 251);
                    }
                    const auto part = std::span(right).subspan(at, counts[r]);
                    if (r == me) std::ranges::copy(part, all.data() + at);
                }
                const Status done =
                    comm.AllGather(all, counts, kHierarchicalTag, Algorithm::kHierarchical);
                ASSERT_TRUE(done.ok()) << HostsText(hosts) << ": " << done.error().message;
                ASSERT_TRUE(all == right) << HostsText(hosts) << " rank " << me;
            }
        });
    }
}

TEST_P(Hierarchical, SumsHaveTheBitsOfTheStraightForm) {
    for (const HostsOfRanks& hosts : Layouts()) {
        OnHosts(hosts, GetParam(), [&](Comm& comm, size_t me) {
            for (const auto& counts : PartsOfMany(hosts.size(), 13)) {
                std::vector<float> straight(Total(counts));
                for (size_t i = 0; i < straight.size(); ++i) straight[i] = RoughValue(me, i);
                std::vector<float> chained = straight;
                ASSERT_TRUE(
                    comm.ReduceScatter(straight, counts, kHierarchicalTag, Algorithm::kOneShot)
                        .ok());
                const Status done =
                    comm.ReduceScatter(chained, counts, kHierarchicalTag, Algorithm::kHierarchical);
                ASSERT_TRUE(done.ok()) << HostsText(hosts) << ": " << done.error().message;
                // Others' parts are as they were, too.
                ASSERT_TRUE(SameBits(straight, chained)) << HostsText(hosts) << " rank " << me;
            }
        });
    }
}

TEST_P(Hierarchical, SumsOfNarrowValuesHaveTheBitsOfTheStraightForm) {
    for (const HostsOfRanks& hosts : Layouts()) {
        OnHosts(hosts, GetParam(), [&](Comm& comm, size_t me) {
            for (const auto& counts : PartsOfMany(hosts.size(), 17)) {
                for (const WireType wire : {WireType::kBF16, WireType::kF16}) {
                    std::vector<uint16_t> data(Total(counts));
                    for (size_t i = 0; i < data.size(); ++i) {
                        const float value = RoughValue(me, i);
                        data[i] = wire == WireType::kF16 ? F32ToF16(value) : F32ToBF16(value);
                    }
                    std::vector<float> sums[2];
                    for (size_t form : {0, 1}) {
                        sums[form].assign(counts[me], -1);
                        const auto take = [&](size_t begin, std::span<const float> some) {
                            ASSERT_LE(begin + some.size(), sums[form].size());
                            std::ranges::copy(some, sums[form].data() + begin);
                        };
                        const Status done = comm.ReduceScatter(
                            wire, std::span<const uint16_t>(data), counts, take, kHierarchicalTag,
                            form == 0 ? Algorithm::kOneShot : Algorithm::kHierarchical);
                        ASSERT_TRUE(done.ok()) << HostsText(hosts) << done.error().message;
                    }
                    ASSERT_TRUE(SameBits(sums[0], sums[1]))
                        << HostsText(hosts) << " rank " << me << " " << WireName(wire);
                }
            }
        });
    }
}

// All collectives after each other, in both forms: credits that one keeps for itself would stop
// the next.
TEST_P(Hierarchical, FormsFollowEachOtherInAnyOrder) {
    const HostsOfRanks hosts{0, 0, 1, 1, 1, 0};
    OnHosts(hosts, GetParam(), [&](Comm& comm, size_t) {
        std::mt19937 random(23);
        for (int round = 0; round < 300; ++round) {
            std::vector<size_t> counts(hosts.size());
            for (size_t& count : counts) count = random() % 4 == 0 ? 0 : random() % 4000;
            const Algorithm by = random() % 2 == 0 ? Algorithm::kHierarchical : Algorithm::kOneShot;
            std::vector<float> data(Total(counts), 1);
            Status done;
            switch (random() % 4) {
                case 0: done = comm.ReduceScatter(data, counts, kHierarchicalTag, by); break;
                case 1:
                    for (size_t& count : counts) count *= sizeof(float);
                    done = comm.AllGather(std::as_writable_bytes(std::span(data)), counts,
                                          kHierarchicalTag, by);
                    break;
                case 2: done = comm.AllReduce(data, kHierarchicalTag, {by}); break;
                default: done = comm.Barrier(kHierarchicalTag); break;
            }
            ASSERT_TRUE(done.ok()) << "round " << round << ": " << done.error().message;
        }
    });
}

// ---- What crosses between hosts

// A link that counts the bytes behind the heads of messages.
class CountedLink final : public net::Link {
  public:
    CountedLink(std::unique_ptr<net::Link> link, std::atomic<size_t>& bytes)
        : link_(std::move(link)), bytes_(bytes) {}
    const net::PeerName& peer() const override { return link_->peer(); }
    size_t window_bytes() const override { return link_->window_bytes(); }
    std::span<std::byte> window() override { return link_->window(); }
    uint64_t flag(int index) const override { return link_->flag(index); }
    Status Put(size_t offset, std::span<const std::byte> head, std::span<const std::byte> data,
               int flag, uint64_t value, const net::OpTag& tag, const Deadline& deadline) override {
        bytes_ += data.size();
        return link_->Put(offset, head, data, flag, value, tag, deadline);
    }
    void Expect(size_t offset, size_t bytes) override { link_->Expect(offset, bytes); }
    size_t least_expected_bytes() const override { return link_->least_expected_bytes(); }
    Status Wait(int flag, uint64_t value, const net::OpTag& tag,
                const Deadline& deadline) override {
        return link_->Wait(flag, value, tag, deadline);
    }

  private:
    std::unique_ptr<net::Link> link_;
    std::atomic<size_t>& bytes_;
};

// For each host, bytes sent to other hosts and received from them.
struct Crossing {
    std::vector<size_t> sent, got;
    size_t total() const { return Total(sent); }
    size_t most() const {
        return std::max(*std::ranges::max_element(sent), *std::ranges::max_element(got));
    }
};

// Links within a host are shm, others tcp: from this, Comm derives the hosts. bytes: [from * n +
// to].
struct Mixed {
    Mixed(const HostsOfRanks& hosts, std::vector<std::atomic<size_t>>& bytes)
        : fabrics(Of(hosts, Transport::kShm)), others(Of(hosts, Transport::kTcp)) {
        const size_t n = hosts.size();
        for (size_t r = 0; r < n; ++r) {
            for (size_t p = 0; p < n; ++p) {
                if (p == r) continue;
                std::unique_ptr<net::Link>& link = fabrics[r].links[p];
                if (hosts[p] != hosts[r]) std::swap(link, others[r].links[p]);
                link = std::make_unique<CountedLink>(std::move(link), bytes[r * n + p]);
            }
        }
    }
    static std::vector<net::Fabric> Of(const HostsOfRanks& hosts, Transport transport) {
        const int ranks = static_cast<int>(hosts.size());
        return net::MakeLocalFabrics(ranks, transport, kByHostsWindow).value();
    }
    std::vector<net::Fabric> fabrics, others;
};

Crossing CrossingOf(const HostsOfRanks& hosts, const std::function<void(Comm&)>& body) {
    const size_t n = hosts.size();
    std::vector<std::atomic<size_t>> bytes(n * n);
    Mixed mixed(hosts, bytes);
    std::vector<std::unique_ptr<Comm>> comms(n);
    test::OnThreads(mixed.fabrics, [&](net::Fabric& fabric) {
        auto& comm = comms[static_cast<size_t>(fabric.rank)] = CommOf(fabric);
        // The first collective includes the exchange of hosts, which must not be counted.
        std::vector<std::byte> all(n);
        ASSERT_TRUE(comm->AllGather(all, std::vector<size_t>(n, 1), kHierarchicalTag).ok());
    });
    for (auto& count : bytes) count = 0;
    test::OnThreads(mixed.fabrics,
                    [&](net::Fabric& fabric) { body(*comms[static_cast<size_t>(fabric.rank)]); });
    const auto most = static_cast<size_t>(*std::ranges::max_element(hosts));
    Crossing crossing{std::vector<size_t>(most + 1), std::vector<size_t>(most + 1)};
    for (size_t r = 0; r < n; ++r) {
        for (size_t p = 0; p < n; ++p) {
            if (hosts[p] == hosts[r]) continue;
            crossing.sent[static_cast<size_t>(hosts[r])] += bytes[r * n + p];
            crossing.got[static_cast<size_t>(hosts[p])] += bytes[r * n + p];
        }
    }
    return crossing;
}

const std::vector<HostsOfRanks> kShared{
    {0, 0, 1, 1}, {0, 0, 1}, {0, 0, 0, 1, 2, 2}, {0, 1, 0, 1}, {0, 0, 0, 0, 1, 1, 1, 1}};

TEST(BetweenHosts, AGatheredPartCrossesOnceToEachHost) {
    for (const HostsOfRanks& hosts : kShared) {
        std::vector<size_t> counts(hosts.size());
        for (size_t r = 0; r < counts.size(); ++r) counts[r] = 6000 + 500 * r;
        const auto gather = [&](Algorithm by) {
            return CrossingOf(hosts, [&](Comm& comm) {
                std::vector<std::byte> all(Total(counts));
                ASSERT_TRUE(comm.AllGather(all, counts, kHierarchicalTag, by).ok());
            });
        };
        const Crossing crossing = gather(Algorithm::kAuto);
        const size_t others = crossing.sent.size() - 1;
        EXPECT_EQ(others * Total(counts), crossing.total()) << HostsText(hosts);
        EXPECT_GT(gather(Algorithm::kOneShot).total(), crossing.total()) << HostsText(hosts);
    }
}

// Each rank of a host brings in as many parts of others as the next.
TEST(BetweenHosts, CarriersShareTheWork) {
    for (const HostsOfRanks& layout : Layouts()) {
        const Hosts hosts = HostsOf(layout, 0);
        for (size_t host = 0; host < hosts.ranks.size(); ++host) {
            std::vector<size_t> carries(layout.size());
            for (size_t r = 0; r < layout.size(); ++r) {
                if (hosts.host_of[r] == host) continue;
                const int carrier = hosts.CarrierOf(static_cast<int>(r), host);
                EXPECT_EQ(host, hosts.host_of[static_cast<size_t>(carrier)]);
                carries[static_cast<size_t>(carrier)]++;
            }
            std::vector<size_t> theirs;
            for (int r : hosts.ranks[host]) theirs.push_back(carries[static_cast<size_t>(r)]);
            EXPECT_LE(std::ranges::max(theirs) - std::ranges::min(theirs), 1u);
        }
    }
}

// The busiest host sends and receives as many parts as planned, fewer than by direct sending.
TEST(BetweenHosts, SumsCrossAsPlanned) {
    constexpr size_t kPart = 60'000;  // enough of them for a chain of any layout
    for (const HostsOfRanks& hosts : kShared) {
        const Hosts plan = HostsOf(hosts, 0);
        const std::vector<size_t> counts(hosts.size(), kPart);
        const auto crossing = [&](Algorithm by) {
            return CrossingOf(hosts, [&](Comm& comm) {
                std::vector<float> data(Total(counts));
                ASSERT_TRUE(comm.ReduceScatter(data, counts, kHierarchicalTag, by).ok());
            });
        };
        const size_t bytes = kPart * sizeof(float);
        const size_t straight = crossing(Algorithm::kOneShot).most();
        EXPECT_EQ(plan.chain.straight_load * bytes, straight) << HostsText(hosts);
        EXPECT_EQ(plan.chain.load * bytes, crossing(Algorithm::kHierarchical).most());
        EXPECT_EQ(plan.chain.pays, plan.chain.load < plan.chain.straight_load);
        const size_t less = std::min(plan.chain.load, plan.chain.straight_load) * bytes;
        EXPECT_EQ(less, crossing(Algorithm::kAuto).most()) << HostsText(hosts);
    }
    // Computed by hand: of four parts on two hosts of two ranks, one crosses in both directions.
    const Hosts two = HostsOf(HostsOfRanks{0, 0, 1, 1}, 0);
    EXPECT_EQ(3u, two.chain.load);
    EXPECT_EQ(4u, two.chain.straight_load);
    EXPECT_FALSE(HostsOf(HostsOfRanks{0, 1, 0, 1}, 0).chain.pays);
    // A sum of two is as long as two narrow values.
    EXPECT_FALSE(two.narrow_chain.pays);
    EXPECT_TRUE(HostsOf(HostsOfRanks{0, 0, 0, 0, 1, 1, 1, 1}, 0).narrow_chain.pays);
}

TEST(BetweenHosts, LoadsOfEvenHostsHaveAFormula) {
    for (size_t hosts : {2, 3, 4, 8}) {
        for (size_t each : {4, 8}) {
            HostsOfRanks layout;
            for (size_t r = 0; r < hosts * each; ++r) layout.push_back(static_cast<int>(r / each));
            const Hosts plan = HostsOf(layout, 0);
            const auto n = static_cast<double>(layout.size()), h = static_cast<double>(hosts);
            for (const auto& [chain, units] :
                 {std::pair{plan.chain, 1.0}, std::pair{plan.narrow_chain, 2.0}}) {
                EXPECT_DOUBLE_EQ(StraightLoad(n, h) * n, static_cast<double>(chain.straight_load));
                EXPECT_NEAR(ChainLoad(n, h, units) * n, static_cast<double>(chain.load), 1e-9)
                    << hosts << " hosts of " << each << ", units " << units;
            }
        }
    }
}

TEST(BetweenHosts, AMeasuredTableGoesByHostsToo) {
    std::vector<std::atomic<size_t>> bytes(16);
    Mixed mixed({0, 0, 1, 1}, bytes);
    test::OnThreads(mixed.fabrics, [](net::Fabric& fabric) {
        auto comm = CommOf(fabric);
        TuneOptions options;
        options.seconds = 0.01;
        options.several_hosts = true;
        const auto tuning = MeasureTuning(*comm, options);
        ASSERT_TRUE(tuning.ok()) << tuning.error().message;
        for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
            EXPECT_EQ(Algorithm::kHierarchical, tuning->For(collective, size_t{1} << 20).algorithm);
        }
    });
}

// ---- Faults

// turns: counts the calls of all ranks.
std::string ShareForever(net::Fabric& fabric, const HostsOfRanks& hosts, int64_t timeout_ms,
                         const test::SharedCount& turns) {
    auto comm = CommOf(fabric, timeout_ms);
    if (!comm->SetHosts(hosts).ok()) return "no hosts";
    const std::vector<size_t> counts(hosts.size(), 5000);
    std::vector<float> data(Total(counts));
    for (int64_t i = 0;; ++i) {
        const Algorithm by = Algorithm::kHierarchical;
        const net::OpTag tag{"share", i, i / 60};
        const Status done =
            i % 2 == 0 ? comm->ReduceScatter(data, counts, tag, by)
                       : comm->AllGather(std::as_writable_bytes(std::span(data)),
                                         std::vector<size_t>(hosts.size(), 20'000), tag, by);
        if (!done.ok()) return done.error().message;
        ++*turns;
    }
}

TEST_P(Hierarchical, AKilledRankIsNamedByAllOthers) {
    for (int lost : {0, 1, 3}) {
        const test::SharedCount turns;
        test::RankProcesses ranks(4, GetParam(), kByHostsWindow, [&](net::Fabric& fabric) {
            return ShareForever(fabric, {0, 0, 1, 1}, 5000, turns);
        });
        ASSERT_TRUE(turns.Reaches(4 * 20));
        const int64_t begin = NowNs();
        ranks.Signal(lost, SIGKILL);
        for (int rank = 0; rank < 4; ++rank) {
            if (rank == lost) continue;
            const std::string words = ranks.Words(rank);
            EXPECT_EQ(0u, words.find("rank " + std::to_string(lost) + " (host localhost"))
                << "on rank " << rank << ": " << words;
            EXPECT_NE(std::string::npos, words.find("share #")) << words;
        }
        EXPECT_LT(NowNs() - begin, test::LimitNs(4000));
    }
}

TEST_P(Hierarchical, RanksThatGoUnlikeWaysFindOut) {
    auto fabrics = net::MakeLocalFabrics(4, GetParam(), kByHostsWindow).value();
    std::atomic<int> corrupt = 0;
    const int64_t begin = NowNs();
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        auto comm = CommOf(fabric, 1000);
        ASSERT_TRUE(comm->SetHosts(HostsOfRanks{0, 0, 1, 1}).ok());
        std::vector<std::byte> all(400);
        const std::vector<size_t> counts(4, 100);
        const Status done =
            comm->AllGather(all, counts, kHierarchicalTag,
                            fabric.rank == 2 ? Algorithm::kOneShot : Algorithm::kHierarchical);
        EXPECT_FALSE(done.ok());
        if (done.ok() || done.error().code != ErrorCode::kCorrupt) return;
        corrupt++;
        EXPECT_NE(std::string::npos, done.error().message.find("by hierarchical"))
            << done.error().message;
    });
    EXPECT_GT(corrupt, 0);
    EXPECT_LT(NowNs() - begin, test::LimitNs(6000));
}

}  // namespace
}  // namespace weft::coll
