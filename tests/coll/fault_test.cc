// Collectives whose peers die, stop or run another program: an error in time that names the rank.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "coll/comm.h"
#include "support/limits.h"
#include "support/ranks.h"

namespace weft::coll {
namespace {

using net::Transport;

constexpr size_t kFaultWindow = size_t{256} << 10;
const Channel kFaultChannel{.window_begin = 0, .window_bytes = kFaultWindow};

class FaultTest : public ::testing::TestWithParam<Transport> {};

INSTANTIATE_TEST_SUITE_P(Transports, FaultTest, ::testing::ValuesIn(test::LocalTransports()),
                         [](const auto& made) { return TransportName(made.param); });

std::vector<int> FaultAllRanks(int size) {
    std::vector<int> ranks;
    for (int r = 0; r < size; r++) ranks.push_back(r);
    return ranks;
}

// All-reduces of changing size and algorithm until one fails. done: counts all ranks' all-reduces.
std::string ReduceForever(net::Fabric& fabric, int64_t timeout_ms, const test::SharedCount& done) {
    auto comm = Comm::Make(fabric, FaultAllRanks(fabric.size), kFaultChannel, timeout_ms).value();
    std::vector<float> data(300'000);
    for (int64_t i = 0;; i++) {
        const size_t count = i % 3 == 0 ? 576 : i % 3 == 1 ? 40'000 : data.size();
        const net::OpTag tag{"all_reduce", i, i / 60};
        const Status reduced =
            comm->AllReduce(std::span(data).first(count), tag, {static_cast<Algorithm>(i % 6)});
        ++*done;
        if (reduced.ok()) continue;
        const Status again = comm->Barrier(tag);
        if (again.ok() || again.error().message != reduced.error().message) return "not repeated";
        return reduced.error().message;
    }
}

TEST_P(FaultTest, AKilledRankIsNamedByAllOthers) {
    const test::SharedCount done;
    test::RankProcesses ranks(3, GetParam(), kFaultWindow, [&](net::Fabric& fabric) -> std::string {
        return ReduceForever(fabric, 5000, done);
    });
    ASSERT_TRUE(done.Reaches(3 * 20));
    const int64_t begin = NowNs();
    ranks.Signal(1, SIGKILL);
    for (int rank : {0, 2}) {
        const std::string words = ranks.Words(rank);
        EXPECT_EQ(0u, words.find("rank 1 (host localhost")) << "on rank " << rank << ": " << words;
        EXPECT_NE(std::string::npos, words.find("all_reduce #")) << words;
    }
    EXPECT_LT(NowNs() - begin, test::LimitNs(4000));
}

TEST_P(FaultTest, AStoppedRankIsNamedInTime) {
    const test::SharedCount done;
    test::RankProcesses ranks(2, GetParam(), kFaultWindow, [&](net::Fabric& fabric) -> std::string {
        return ReduceForever(fabric, 500, done);
    });
    ASSERT_TRUE(done.Reaches(2 * 20));
    const int64_t begin = NowNs();
    ranks.Signal(1, SIGSTOP);
    const std::string words = ranks.Words(0);
    EXPECT_EQ(0u, words.find("rank 1 (host localhost")) << words;
    EXPECT_NE(std::string::npos, words.find("within 500 ms")) << words;
    EXPECT_LT(NowNs() - begin, test::LimitNs(3000));
}

TEST_P(FaultTest, ASendToARankThatNeverReceivesEndsAtTheDeadline) {
    auto fabrics = net::MakeLocalFabrics(2, GetParam(), kFaultWindow).value();
    auto comm = Comm::Make(fabrics[0], {0, 1}, kFaultChannel, 100).value();
    const net::OpTag tag{"send", 3, 4};
    const std::vector<std::byte> data(100);
    for (int i = 0; i < 4; i++) ASSERT_TRUE(comm->Send(data, 1, tag).ok());
    const Status fifth = comm->Send(data, 1, tag);
    ASSERT_FALSE(fifth.ok());
    EXPECT_EQ(ErrorCode::kTimeout, fifth.error().code);
    EXPECT_NE(std::string::npos, fifth.error().message.find("send #3 of step 4 within 100 ms"));
}

TEST_P(FaultTest, RanksOfDifferentProgramsFindOut) {
    auto fabrics = net::MakeLocalFabrics(2, GetParam(), kFaultWindow).value();
    std::string words[2];
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        auto comm = Comm::Make(fabric, {0, 1}, kFaultChannel, 2000).value();
        std::vector<float> data(fabric.rank == 0 ? 576 : 1024);
        const Status reduced = comm->AllReduce(data, {"all_reduce", 5, 6}, {Algorithm::kOneShot});
        ASSERT_FALSE(reduced.ok());
        EXPECT_EQ(ErrorCode::kCorrupt, reduced.error().code);
        words[fabric.rank] = reduced.error().message;
    });
    EXPECT_NE(std::string::npos, words[0].find("sent 4096 bytes")) << words[0];
    EXPECT_NE(std::string::npos, words[1].find("expected 4096 bytes")) << words[1];
}

// Collectives that send no message. A rank that skips one has another number at the next.
TEST_P(FaultTest, ASkippedCollectiveWithoutMessagesIsFoundAtTheNext) {
    const std::vector<size_t> none(3);
    const net::OpTag tag{"nothing", 1, 2};
    const auto reduce = [&](Comm& comm) { return comm.AllReduce(std::span<float>(), tag); };
    const auto gather = [&](Comm& comm) { return comm.AllGather({}, none, tag); };
    const auto exchange = [&](Comm& comm) { return comm.AllToAll({}, none, {}, none, tag); };
    for (const std::function<Status(Comm&)>& skipped :
         std::vector<std::function<Status(Comm&)>>{reduce, gather, exchange}) {
        for (int skips = 0; skips < 3; ++skips) {
            auto fabrics = net::MakeLocalFabrics(3, GetParam(), kFaultWindow).value();
            const int64_t begin = NowNs();
            test::OnThreads(fabrics, [&](net::Fabric& fabric) {
                auto comm = Comm::Make(fabric, FaultAllRanks(3), kFaultChannel, 500).value();
                std::vector<float> data(576);
                ASSERT_TRUE(comm->AllReduce(data, {"all_reduce", 0, 2}).ok());
                if (fabric.rank != skips) {
                    ASSERT_TRUE(skipped(*comm).ok());
                }
                const Status reduced = comm->AllReduce(data, {"all_reduce", 7, 2});
                ASSERT_FALSE(reduced.ok()) << "rank " << fabric.rank << " without " << skips;
                const std::string& words = reduced.error().message;
                EXPECT_NE(std::string::npos, words.find("all_reduce #7 of step 2")) << words;
                // Two others agree with each other: they may wait for the third alone.
                if (reduced.error().code == ErrorCode::kTimeout && fabric.rank != skips) return;
                EXPECT_EQ(ErrorCode::kCorrupt, reduced.error().code) << words;
                for (const char* number : {"(collective 2)", "(collective 3)"}) {
                    EXPECT_NE(std::string::npos, words.find(number)) << words;
                }
            });
            EXPECT_LT(NowNs() - begin, (500 + test::LimitMs(1000)) * 1'000'000);
        }
    }
}

TEST_P(FaultTest, GroupsOfOneFabricDoNotMix) {
    auto fabrics = net::MakeLocalFabrics(4, GetParam(), kFaultWindow).value();
    test::OnThreads(fabrics, [](net::Fabric& fabric) {
        // Two pairs, and the world, each with its part of the windows and its flags.
        const Channel small{.window_begin = 0, .window_bytes = kFaultWindow / 2, .flag_begin = 0};
        const Channel large{
            .window_begin = kFaultWindow / 2, .window_bytes = kFaultWindow / 2, .flag_begin = 4};
        const std::vector<int> pair = fabric.rank < 2 ? std::vector{0, 1} : std::vector{2, 3};
        auto pairs = Comm::Make(fabric, pair, small, 5000).value();
        auto world = Comm::Make(fabric, FaultAllRanks(4), large, 5000).value();
        EXPECT_EQ(fabric.rank % 2, pairs->rank());
        for (int i = 0; i < 200; i++) {
            std::vector<float> data(100, static_cast<float>(fabric.rank));
            ASSERT_TRUE(pairs->AllReduce(data, {"all_reduce", i, 0}).ok());
            ASSERT_EQ(fabric.rank < 2 ? 1.0f : 5.0f, data[99]);
            ASSERT_TRUE(world->AllReduce(data, {"all_reduce", i, 1}).ok());
            ASSERT_EQ(12.0f, data[99]);
        }
    });
}

TEST(Comm, ImpossibleGroupsAreRefused) {
    auto fabrics = net::MakeLocalFabrics(2, Transport::kShm, kFaultWindow).value();
    const auto refused = [&](std::vector<int> ranks, Channel channel, int64_t ms = 100) {
        const auto made = Comm::Make(fabrics[0], std::move(ranks), channel, ms);
        return !made.ok() && made.error().code == ErrorCode::kUsage;
    };
    EXPECT_TRUE(refused({}, kFaultChannel));
    EXPECT_TRUE(refused({1}, kFaultChannel)) << "not a member";
    EXPECT_TRUE(refused({1, 0}, kFaultChannel));
    EXPECT_TRUE(refused({0, 0, 1}, kFaultChannel));
    EXPECT_TRUE(refused({0, 2}, kFaultChannel));
    EXPECT_TRUE(refused({0, 1}, kFaultChannel, 0));
    EXPECT_TRUE(refused({0, 1}, {.window_begin = 64, .window_bytes = kFaultWindow}));
    EXPECT_TRUE(refused({0, 1}, {.window_begin = ~size_t{63}, .window_bytes = kFaultWindow}));
    EXPECT_TRUE(refused({0, 1}, {.window_begin = 0, .window_bytes = 1024}));
    EXPECT_TRUE(
        refused({0, 1}, {.window_begin = 0, .window_bytes = kFaultWindow, .flag_begin = 13}));
    EXPECT_FALSE(refused({0, 1}, kFaultChannel));
}

}  // namespace
}  // namespace weft::coll
