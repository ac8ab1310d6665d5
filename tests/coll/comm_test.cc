// Collectives of every algorithm, on both transports, for 1 to 8 ranks: exact sums, the same bits
// on all ranks, any length, any order of operations, and errors that name the lost rank.
#include "coll/comm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>

#include "support/ranks.h"
#include "support/wait.h"

namespace weft::coll {
namespace {

using net::Transport;

constexpr size_t kCommWindow = size_t{256} << 10;
constexpr int64_t kCommTimeoutMs = 20'000;
const Channel kChannel{
    .window_begin = 0, .window_bytes = kCommWindow, .flag_begin = 0, .flag_count = 4};

net::OpTag CommTag(int64_t index) {
    return {"all_reduce", index, 7};
}

std::vector<int> AllRanks(int size) {
    std::vector<int> ranks;
    for (int r = 0; r < size; r++) ranks.push_back(r);
    return ranks;
}

std::unique_ptr<Comm> WorldOf(net::Fabric& fabric, int64_t timeout_ms = kCommTimeoutMs) {
    return Comm::Make(fabric, AllRanks(fabric.size), kChannel, timeout_ms).value();
}

float CommAddend(int rank, size_t i) {
    return static_cast<float>(rank * 3 + static_cast<int>(i % 101) - 50);
}

float RandomAddend(int rank, size_t i) {
    const uint32_t mixed =
        static_cast<uint32_t>(i * 2654435761u) ^ (static_cast<uint32_t>(rank + 1) * 0x9e3779b9u);
    return std::ldexp(static_cast<float>(mixed % 20011) - 10005.0f,
                      static_cast<int>(mixed >> 28) - 8);
}

struct CommCase {
    Transport transport;
    int ranks;
};

std::vector<CommCase> CommCases() {
    std::vector<CommCase> cases;
    for (Transport transport : test::LocalTransports()) {
        const int most = transport == Transport::kVerbs ? 4 : 8;  // in an emulated machine
        for (int ranks = 1; ranks <= most; ranks++) cases.push_back({transport, ranks});
    }
    return cases;
}

class CommTest : public ::testing::TestWithParam<CommCase> {
  protected:
    std::vector<net::Fabric> Fabrics() {
        return net::MakeLocalFabrics(GetParam().ranks, GetParam().transport, kCommWindow).value();
    }
};

INSTANTIATE_TEST_SUITE_P(Ranks, CommTest, ::testing::ValuesIn(CommCases()), [](const auto& made) {
    return std::string(TransportName(made.param.transport)) + std::to_string(made.param.ranks);
});

TEST_P(CommTest, SumsAreExactForEveryAlgorithmAndLength) {
    auto fabrics = Fabrics();
    test::OnThreads(fabrics, [](net::Fabric& fabric) {
        auto comm = WorldOf(fabric);
        int64_t index = 0;
        // The window holds 4 messages of 32 KiB: the longest go in several pieces.
        for (size_t count : {0, 1, 2, 15, 16, 17, 63, 576, 2048, 4097, 8191, 33'000, 150'001}) {
            for (Algorithm algorithm : kAlgorithms) {
                std::vector<float> data(count);
                for (size_t i = 0; i < count; i++) data[i] = CommAddend(fabric.rank, i);
                ASSERT_TRUE(comm->AllReduce(data, CommTag(index++), {algorithm}).ok());
                size_t wrong = 0;
                for (size_t i = 0; i < count; i++) {
                    float sum = 0;
                    for (int r = 0; r < fabric.size; r++) sum += CommAddend(r, i);
                    wrong += !(data[i] == sum);
                }
                EXPECT_EQ(0u, wrong) << AlgorithmName(algorithm) << " of " << count;
            }
        }
    });
}

// Float64 sums keep what float32 would round away, with every algorithm.
TEST_P(CommTest, Float64SumsAreExact) {
    auto fabrics = Fabrics();
    const auto addend = [](int rank, size_t i) {
        return CommAddend(rank, i) + (rank + 1) * 0x1p-40;
    };
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        auto comm = WorldOf(fabric);
        int64_t index = 0;
        for (size_t count : {1, 7, 9, 576, 4097, 33'000}) {
            for (Algorithm algorithm : kAlgorithms) {
                std::vector<double> data(count);
                for (size_t i = 0; i < count; i++) data[i] = addend(fabric.rank, i);
                ASSERT_TRUE(comm->AllReduce(data, CommTag(index++), {algorithm}).ok());
                size_t wrong = 0;
                for (size_t i = 0; i < count; i++) {
                    double sum = 0;
                    for (int r = 0; r < fabric.size; r++) sum += addend(r, i);
                    wrong += !(data[i] == sum);
                }
                EXPECT_EQ(0u, wrong) << AlgorithmName(algorithm) << " of " << count;
            }
        }
    });
}

TEST_P(CommTest, AllRanksHoldTheBitsOfTheSumInRankOrder) {
    const int n = GetParam().ranks;
    constexpr size_t kCount = 9'000;
    std::vector<std::vector<float>> got(static_cast<size_t>(n));
    for (Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kRing}) {
        auto fabrics = Fabrics();
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            auto comm = WorldOf(fabric);
            std::vector<float> data(kCount);
            for (size_t i = 0; i < kCount; i++) data[i] = RandomAddend(fabric.rank, i);
            ASSERT_TRUE(comm->AllReduce(data, CommTag(0), {algorithm}).ok());
            got[static_cast<size_t>(fabric.rank)] = data;
        });
        // The order is part of the contract: 0 + 1 + ..., or from the segment's own rank around.
        const size_t segment =
            (kCount / static_cast<size_t>(n) + (kCount % static_cast<size_t>(n) != 0) + 15) / 16 *
            16;
        for (size_t i = 0; i < kCount; i++) {
            const int first = algorithm == Algorithm::kRing ? static_cast<int>(i / segment) : 0;
            float sum = RandomAddend(first % n, i);
            for (int k = 1; k < n; k++) sum += RandomAddend((first + k) % n, i);
            ASSERT_EQ(sum, got[0][i]) << AlgorithmName(algorithm) << " at " << i;
        }
        for (int r = 1; r < n; r++) {
            EXPECT_EQ(0, std::memcmp(got[0].data(), got[static_cast<size_t>(r)].data(),
                                     kCount * sizeof(float)))
                << AlgorithmName(algorithm) << " on rank " << r;
        }
    }
}

TEST_P(CommTest, UnevenPartsAreGathered) {
    auto fabrics = Fabrics();
    test::OnThreads(fabrics, [](net::Fabric& fabric) {
        auto comm = WorldOf(fabric);
        std::mt19937 random(5);  // the same on all ranks
        for (int round = 0; round < 12; round++) {
            std::vector<size_t> counts(static_cast<size_t>(fabric.size));
            size_t total = 0;
            for (size_t& count : counts) {
                count = random() % 4 == 0 ? 0 : random() % (round < 6 ? 900 : 90'000);
                total += count;
            }
            std::vector<std::byte> all(total);
            std::vector<std::byte> expected(total);
            size_t at = 0;
            for (int r = 0; r < fabric.size; r++) {
                for (size_t i = 0; i < counts[static_cast<size_t>(r)]; i++, at++) {
                    expected[at] = static_cast<std::byte>(r * 31 + static_cast<int>(i % 251));
                    if (r == fabric.rank) all[at] = expected[at];
                }
            }
            ASSERT_TRUE(comm->AllGather(all, counts, CommTag(round)).ok());
            EXPECT_TRUE(all == expected) << "round " << round;
        }
    });
}

// A random program of all operations, the same on all ranks: credits never run dry, and no
// operation reads another's message.
TEST_P(CommTest, AnyOrderOfOperationsWorks) {
    auto fabrics = Fabrics();
    test::OnThreads(fabrics, [](net::Fabric& fabric) {
        auto comm = WorldOf(fabric);
        const int n = fabric.size;
        std::mt19937 random(99);
        for (int step = 0; step < 400; step++) {
            const uint32_t what = random() % 8;
            const int root = static_cast<int>(random() % static_cast<uint32_t>(n));
            const size_t bytes = random() % 16 == 0 ? random() % 100'000 : random() % 300;
            if (what < 3) {
                std::vector<float> data(bytes / 4, static_cast<float>(fabric.rank + step));
                const Algorithm algorithm = kAlgorithms[random() % kAlgorithms.size()];
                ASSERT_TRUE(comm->AllReduce(data, CommTag(step), {algorithm}).ok());
                const float sum = static_cast<float>(n * step + n * (n - 1) / 2);
                for (float value : data) ASSERT_EQ(sum, value);
            } else if (what < 6) {
                std::vector<std::byte> data(
                    bytes, static_cast<std::byte>(fabric.rank == root ? step : 255));
                const Status cast = comm->Broadcast(data, root, CommTag(step));
                ASSERT_TRUE(cast.ok()) << cast.error().message;
                for (std::byte b : data) ASSERT_EQ(static_cast<std::byte>(step), b);
            } else if (what == 6) {
                ASSERT_TRUE(comm->Barrier(CommTag(step)).ok());
            } else if (n > 1) {
                const int to = (root + 1) % n;
                std::vector<std::byte> data(bytes, static_cast<std::byte>(step));
                if (fabric.rank == root) {
                    ASSERT_TRUE(comm->Send(data, to, CommTag(step)).ok());
                }
                if (fabric.rank == to) {
                    std::vector<std::byte> got(bytes);
                    ASSERT_TRUE(comm->Recv(got, root, CommTag(step)).ok());
                    ASSERT_TRUE(got == data);
                }
            }
        }
    });
}

TEST_P(CommTest, SeveralSendsAreInFlight) {
    if (GetParam().ranks != 2) return;
    auto fabrics = Fabrics();
    test::OnThreads(fabrics, [](net::Fabric& fabric) {
        auto comm = WorldOf(fabric);
        const size_t bytes = comm->max_send_bytes();
        std::vector<std::byte> data(bytes);
        // Both send four messages before either receives, and a collective between them.
        for (int round = 0; round < 8; round++) {
            for (int i = 0; i < 4; i++) {
                std::fill(data.begin(), data.end(), static_cast<std::byte>(round * 4 + i));
                ASSERT_TRUE(comm->Send(data, 1 - fabric.rank, CommTag(i)).ok());
            }
            ASSERT_TRUE(comm->Barrier(CommTag(round)).ok());
            for (int i = 0; i < 4; i++) {
                ASSERT_TRUE(comm->Recv(data, 1 - fabric.rank, CommTag(i)).ok());
                ASSERT_EQ(static_cast<std::byte>(round * 4 + i), data[0]);
                ASSERT_EQ(static_cast<std::byte>(round * 4 + i), data[bytes - 1]);
            }
        }
    });
}

TEST_P(CommTest, TimingKnowsTheSlowestRank) {
    if (GetParam().ranks < 2) return;
    for (Algorithm algorithm : kAlgorithms) {
        auto again = Fabrics();
        std::mutex mutex;
        std::atomic<int> inside = 0;
        int64_t slowest = 0;
        std::vector<Timing> timings;
        test::OnThreads(again, [&](net::Fabric& fabric) {
            auto comm = WorldOf(fabric);
            std::vector<float> data(2048);
            ASSERT_TRUE(comm->Barrier(CommTag(0)).ok());
            if (fabric.rank == 1) {
                ASSERT_TRUE(test::Until([&] { return inside == fabric.size - 1; }));
                ASSERT_TRUE(test::OthersSleep());
            } else {
                ++inside;
            }
            ASSERT_TRUE(comm->AllReduce(data, CommTag(1), {algorithm}).ok());
            const std::lock_guard lock(mutex);
            timings.push_back(comm->last_timing());
            if (fabric.rank == 1) slowest = comm->last_timing().begin_ns;
        });
        for (const Timing& timing : timings) {
            // Ranks turn ticks into nanoseconds each by its own reading of the clocks.
            EXPECT_LE(std::abs(slowest - timing.last_arrival_ns), 100'000)
                << AlgorithmName(algorithm);
            EXPECT_LE(timing.last_arrival_ns, timing.end_ns);
            EXPECT_EQ(8192u, timing.bytes);
        }
    }
}

}  // namespace
}  // namespace weft::coll
