// Properties over random ranks, sizes, algorithms, wire types and hosts: every collective against
// a naive one that sees all ranks' data.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "coll/comm.h"
#include "coll/wire.h"
#include "support/nightly.h"
#include "support/ranks.h"
#include "tensor/half.h"

namespace weft::coll {
namespace {

using net::Transport;

constexpr size_t kCollectivesWindow = size_t{64} << 10;  // small: long data goes in many pieces
constexpr int64_t kCollectivesTimeoutMs = 20'000;

struct Case {
    Transport transport;
    int ranks;
};

std::vector<Case> Cases() {
    std::vector<Case> cases;
    for (int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 11}) cases.push_back({Transport::kShm, ranks});
    for (int ranks : {2, 3, 5}) cases.push_back({Transport::kTcp, ranks});
    return cases;
}

std::unique_ptr<Comm> World(net::Fabric& fabric) {
    std::vector<int> ranks(static_cast<size_t>(fabric.size));
    std::iota(ranks.begin(), ranks.end(), 0);
    const Channel channel{.window_bytes = kCollectivesWindow};
    return Comm::Make(fabric, ranks, channel, kCollectivesTimeoutMs).value();
}

net::OpTag Tag(int64_t index) {
    return {"collective", index, 1};
}

double Addend(int rank, size_t i) {
    std::minstd_rand random(static_cast<uint32_t>(i * 31 + static_cast<size_t>(rank) * 7919 + 1));
    random();
    const double fraction = static_cast<double>(random() % 200'001) - 100'000;
    return std::ldexp(fraction, static_cast<int>(random() % 12) - 20);
}

template <typename T>
std::vector<T> Addends(int rank, size_t count) {
    std::vector<T> data(count);
    for (size_t i = 0; i < count; i++) data[i] = static_cast<T>(Addend(rank, i));
    return data;
}

class CollectivesTest : public ::testing::TestWithParam<Case> {
  protected:
    void SetUp() override {
        const int ranks = GetParam().ranks;
        SKIP_TO_NIGHT_UNLESS(ranks == 1 || ranks == 2 || ranks == 3 || ranks == 8);
    }
    // body(comm, random): on every rank, with the same random numbers.
    void OnRanks(uint32_t seed, const std::function<void(Comm&, std::mt19937&)>& body) {
        auto fabrics =
            net::MakeLocalFabrics(GetParam().ranks, GetParam().transport, kCollectivesWindow)
                .value();
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            auto comm = World(fabric);
            std::mt19937 random(seed);
            body(*comm, random);
        });
    }
};

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesTest, ::testing::ValuesIn(Cases()),
                         [](const auto& made) {
                             return std::string(TransportName(made.param.transport)) +
                                    std::to_string(made.param.ranks);
                         });

// The sum of some addends in the stated order of an algorithm.
template <typename T>
T Naive(Algorithm algorithm, const std::vector<int>& hosts, size_t i, size_t count) {
    const size_t n = hosts.size();
    std::vector<T> sums(n);
    for (size_t r = 0; r < n; r++) sums[r] = static_cast<T>(Addend(static_cast<int>(r), i));
    const auto in_order = [&](size_t first) {
        T sum = sums[first];
        for (size_t k = 1; k < n; k++) sum += sums[(first + k) % n];
        return sum;
    };
    switch (algorithm) {
        case Algorithm::kAuto:
        case Algorithm::kOneShot:
        case Algorithm::kTwoShot: return in_order(0);
        case Algorithm::kRing: {
            const size_t line = 64 / sizeof(T);
            const size_t segment = ((count + n - 1) / n + line - 1) / line * line;
            return in_order(i / segment);
        }
        case Algorithm::kRecursiveDoubling: {
            size_t pairs = 1;
            while (pairs * 2 <= n) pairs *= 2;
            for (size_t r = pairs; r < n; r++) sums[r - pairs] += sums[r];
            for (size_t bit = 1; bit < pairs; bit *= 2) {
                for (size_t r = 0; r < pairs; r += 2 * bit) sums[r] += sums[r + bit];
            }
            return sums[0];
        }
        case Algorithm::kHierarchical: {
            std::vector<int> seen;
            T total{};
            for (size_t r = 0; r < n; r++) {
                if (std::ranges::find(seen, hosts[r]) != seen.end()) continue;
                T host = sums[r];
                for (size_t k = r + 1; k < n; k++) {
                    if (hosts[k] == hosts[r]) host += sums[k];
                }
                total = seen.empty() ? host : total + host;
                seen.push_back(hosts[r]);
            }
            return total;
        }
    }
    return T{};
}

template <typename T>
void SumsInTheStatedOrder(Comm& comm, std::mt19937& random) {
    std::vector<int> hosts(static_cast<size_t>(comm.size()));
    const uint32_t most_hosts = 1 + random() % static_cast<uint32_t>(comm.size());
    for (int& host : hosts) host = static_cast<int>(random() % most_hosts);
    ASSERT_TRUE(comm.SetHosts(hosts).ok());
    for (Algorithm algorithm : kAlgorithms) {
        if (algorithm == Algorithm::kAuto) continue;
        // The longest vectors still fit into one piece, so that Naive knows the segments.
        const size_t count = random() % 700;
        std::vector<T> data = Addends<T>(comm.rank(), count);
        const Status reduced = comm.AllReduce(data, Tag(0), {algorithm});
        ASSERT_TRUE(reduced.ok()) << reduced.error().message;
        size_t wrong = 0;
        for (size_t i = 0; i < count; i++) {
            wrong += !(data[i] == Naive<T>(algorithm, hosts, i, count));
        }
        ASSERT_EQ(0u, wrong) << AlgorithmName(algorithm) << " of " << count;
    }
}

TEST_P(CollectivesTest, SumsAreInTheStatedOrder) {
    OnRanks(3, [](Comm& comm, std::mt19937& random) {
        for (int round = 0; round < 15; round++) {
            SumsInTheStatedOrder<float>(comm, random);
            SumsInTheStatedOrder<double>(comm, random);
        }
    });
}

// Largest error of a sum over the wire at value i: for each rounding to the wire type, the error
// that wire.h states, plus the rounding of float additions.
template <typename T>
double Allowed(WireType wire, int ranks, size_t i, size_t count) {
    double most_sum = 0;  // of the magnitudes' sums in any block that holds i
    const size_t begin = wire == WireType::kQ8 ? i - std::min(i, kQ8Block) : i;
    const size_t end = wire == WireType::kQ8 ? std::min(count, i + kQ8Block) : i + 1;
    for (size_t k = begin; k < end; k++) {
        double sum = 0;
        for (int r = 0; r < ranks; r++) sum += std::abs(static_cast<T>(Addend(r, k)));
        most_sum = std::max(most_sum, sum);
    }
    const double once = wire == WireType::kQ8 ? kQ8Error : wire == WireType::kBF16 ? 0x1p-8 : 0;
    // Partial sums are rounded at most once a rank and once more at the end, and carry the errors
    // made before.
    const double times = ranks + 1;
    return most_sum * (std::pow(1 + once, times) - 1 + times * 0x1p-23) + 0x1p-90;
}

template <typename T>
void WireKeepsItsBound(Comm& comm, std::mt19937& random) {
    const Choice choice{kAlgorithms[random() % kAlgorithms.size()], kWires[random() % 3]};
    const size_t count = random() % 6 == 0 ? random() % 30'000 : random() % 400;
    std::vector<T> data = Addends<T>(comm.rank(), count);
    const Status reduced = comm.AllReduce(data, Tag(1), choice);
    ASSERT_TRUE(reduced.ok()) << reduced.error().message;
    size_t wrong = 0;
    for (size_t i = 0; i < count; i += 1 + count / 500) {
        double sum = 0;
        for (int r = 0; r < comm.size(); r++) sum += static_cast<T>(Addend(r, i));
        const double error = std::abs(static_cast<double>(data[i]) - sum);
        wrong += !(error <= Allowed<T>(choice.wire, comm.size(), i, count));
    }
    EXPECT_EQ(0u, wrong) << AlgorithmName(choice.algorithm) << " of " << count << " as "
                         << WireName(choice.wire);
    // All ranks hold the bits of rank 0.
    std::vector<T> first = data;
    ASSERT_TRUE(comm.Broadcast(std::as_writable_bytes(std::span(first)), 0, Tag(2)).ok());
    EXPECT_EQ(0, std::memcmp(first.data(), data.data(), count * sizeof(T)))
        << AlgorithmName(choice.algorithm) << " of " << count << " as " << WireName(choice.wire);
}

TEST_P(CollectivesTest, RoundedSumsAreTheSumsRounded) {
    OnRanks(5, [](Comm& comm, std::mt19937& random) {
        for (int round = 0; round < 40; round++) {
            const Choice choice{kAlgorithms[random() % kAlgorithms.size()], kWires[random() % 3]};
            const size_t count = random() % 5 == 0 ? random() % 20'000 : random() % 400;
            std::vector<double> data = Addends<double>(comm.rank(), count), wide = data;
            std::vector<float> sum(count);
            ASSERT_TRUE(comm.AllReduce(wide, Tag(round), choice).ok());
            ASSERT_TRUE(comm.AllReduce(data, sum, Tag(round), choice).ok());
            size_t wrong = 0;
            for (size_t i = 0; i < count; i++) wrong += !(sum[i] == static_cast<float>(wide[i]));
            ASSERT_EQ(0u, wrong) << AlgorithmName(choice.algorithm) << " of " << count << " as "
                                 << WireName(choice.wire);
        }
    });
}

TEST_P(CollectivesTest, NarrowWiresKeepTheirBoundAndAllRanksHoldTheSameBits) {
    OnRanks(17, [](Comm& comm, std::mt19937& random) {
        std::vector<int> hosts(static_cast<size_t>(comm.size()));
        for (int& host : hosts) host = static_cast<int>(random() % 3);
        ASSERT_TRUE(comm.SetHosts(hosts).ok());
        for (int round = 0; round < 40; round++) {
            WireKeepsItsBound<float>(comm, random);
            WireKeepsItsBound<double>(comm, random);
        }
    });
}

std::vector<size_t> RandomCounts(int parts, std::mt19937& random) {
    std::vector<size_t> counts(static_cast<size_t>(parts));
    const uint32_t most = random() % 5 == 0 ? 9'000 : 200;
    for (size_t& count : counts) count = random() % 3 == 0 ? 0 : random() % most;
    return counts;
}

TEST_P(CollectivesTest, ReduceScatterSumsUnevenParts) {
    OnRanks(23, [](Comm& comm, std::mt19937& random) {
        const std::vector<int> hosts(static_cast<size_t>(comm.size()), 0);
        for (int round = 0; round < 40; round++) {
            const std::vector<size_t> counts = RandomCounts(comm.size(), random);
            const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
            std::vector<float> data = Addends<float>(comm.rank(), total);
            ASSERT_TRUE(comm.ReduceScatter(data, counts, Tag(round)).ok());
            size_t wrong = 0, i = 0;
            for (int r = 0; r < comm.size(); r++) {
                for (size_t k = 0; k < counts[static_cast<size_t>(r)]; k++, i++) {
                    const float expected = r == comm.rank()
                                               ? Naive<float>(Algorithm::kOneShot, hosts, i, total)
                                               : static_cast<float>(Addend(comm.rank(), i));
                    wrong += !(data[i] == expected);
                }
            }
            ASSERT_EQ(0u, wrong) << "round " << round;
        }
    });
}

// Sums BF16 or F16 values in float, each piece once.
TEST_P(CollectivesTest, ReduceScatterOfNarrowValuesSumsInFloat) {
    OnRanks(31, [](Comm& comm, std::mt19937& random) {
        for (int round = 0; round < 40; round++) {
            const bool half = round % 2 == 1;
            const auto addend = [half](int rank, size_t i) {
                const auto value = static_cast<float>(Addend(rank, i));
                return half ? F32ToF16(value) : F32ToBF16(value);
            };
            const auto widened = [half](uint16_t x) { return half ? F16ToF32(x) : BF16ToF32(x); };
            const std::vector<size_t> counts = RandomCounts(comm.size(), random);
            const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
            std::vector<uint16_t> data(total);
            for (size_t i = 0; i < total; i++) data[i] = addend(comm.rank(), i);
            const auto own = static_cast<size_t>(comm.rank());
            const size_t begin =
                std::accumulate(counts.begin(), counts.begin() + comm.rank(), size_t{0});
            std::vector<float> sums(counts[own], NAN);
            const auto take = [&](size_t at, std::span<const float> piece) {
                std::ranges::copy(piece, sums.begin() + static_cast<ptrdiff_t>(at));
            };
            const std::span<const uint16_t> view = data;
            const WireType wire = half ? WireType::kF16 : WireType::kBF16;
            ASSERT_TRUE(comm.ReduceScatter(wire, view, counts, take, Tag(round)).ok());
            size_t wrong = 0;
            for (size_t i = 0; i < sums.size(); i++) {
                float expected = widened(addend(0, begin + i));
                for (int r = 1; r < comm.size(); r++) expected += widened(addend(r, begin + i));
                wrong += !(sums[i] == expected);
            }
            ASSERT_EQ(0u, wrong) << "round " << round;
        }
    });
}

TEST_P(CollectivesTest, AllToAllBringsEveryPartToItsRank) {
    OnRanks(29, [](Comm& comm, std::mt19937& random) {
        const auto byte = [](int from, int to, size_t i) {
            return static_cast<std::byte>(from * 37 + to * 11 + static_cast<int>(i % 239));
        };
        for (int round = 0; round < 40; round++) {
            std::vector<std::vector<size_t>> table;  // [from][to]
            for (int r = 0; r < comm.size(); r++)
                table.push_back(RandomCounts(comm.size(), random));
            std::vector<std::byte> out, expected;
            std::vector<size_t> out_counts = table[static_cast<size_t>(comm.rank())], in_counts;
            for (int r = 0; r < comm.size(); r++) {
                const size_t from = static_cast<size_t>(r), me = static_cast<size_t>(comm.rank());
                for (size_t i = 0; i < out_counts[from]; i++)
                    out.push_back(byte(comm.rank(), r, i));
                in_counts.push_back(table[from][me]);
                for (size_t i = 0; i < table[from][me]; i++) {
                    expected.push_back(byte(r, comm.rank(), i));
                }
            }
            std::vector<std::byte> in(expected.size());
            const Status moved = comm.AllToAll(out, out_counts, in, in_counts, Tag(round));
            ASSERT_TRUE(moved.ok()) << moved.error().message;
            ASSERT_TRUE(in == expected) << "round " << round;
        }
    });
}

// Ranks joined by shm are one host, whatever else joins them to the others: all ranks find that out
// from their own links, and go by hierarchy.
TEST(Hosts, AreFoundFromTheLinks) {
    for (const std::vector<int>& hosts : std::vector<std::vector<int>>{
             {0, 0, 1}, {0, 1, 0, 1}, {0, 0, 1, 1, 1}, {0, 1, 2, 2, 0}, {0, 1, 2}}) {
        const int n = static_cast<int>(hosts.size());
        auto fabrics = net::MakeLocalFabrics(n, Transport::kShm, kCollectivesWindow).value();
        auto others = net::MakeLocalFabrics(n, Transport::kTcp, kCollectivesWindow).value();
        for (size_t r = 0; r < hosts.size(); r++) {
            for (size_t p = 0; p < hosts.size(); p++) {
                if (hosts[p] != hosts[r]) std::swap(fabrics[r].links[p], others[r].links[p]);
            }
        }
        const bool shared = *std::max_element(hosts.begin(), hosts.end()) + 1 < n;
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            auto comm = World(fabric);
            for (size_t count : {5, 600}) {
                std::vector<float> data = Addends<float>(fabric.rank, count);
                ASSERT_TRUE(comm->AllReduce(data, Tag(0)).ok());
                const Algorithm used =
                    comm->tuning().For(Collective::kAllReduce, count * sizeof(float)).algorithm;
                EXPECT_EQ(shared, used == Algorithm::kHierarchical);
                for (size_t i = 0; i < count; i++) {
                    ASSERT_EQ(Naive<float>(used, hosts, i, count), data[i]);
                }
            }
        });
    }
}

// Ranks that do not agree on a part's size find out, whatever the collective.
TEST(Faults, PartsOfDifferentSizesAreFoundOut) {
    auto fabrics = net::MakeLocalFabrics(2, Transport::kShm, kCollectivesWindow).value();
    test::OnThreads(fabrics, [](net::Fabric& fabric) {
        auto comm = World(fabric);
        const size_t me = static_cast<size_t>(fabric.rank);
        // Rank 0 sends 8 bytes where rank 1 expects 9.
        const std::vector<size_t> out_counts =
            me == 0 ? std::vector<size_t>{0, 8} : std::vector<size_t>{8, 0};
        const std::vector<size_t> in_counts =
            me == 0 ? std::vector<size_t>{0, 8} : std::vector<size_t>{9, 0};
        const std::vector<std::byte> out(8);
        std::vector<std::byte> in(me == 0 ? 8 : 9);
        const Status moved = comm->AllToAll(out, out_counts, in, in_counts, Tag(4));
        EXPECT_EQ(me == 0, moved.ok());
        if (!moved.ok()) {
            EXPECT_EQ(ErrorCode::kCorrupt, moved.error().code);
        }
    });
}

}  // namespace
}  // namespace weft::coll
