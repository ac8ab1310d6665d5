// Ranks that wait for each other in different ops end within the timeout with one error. Ranks that
// wait for a computing rank do not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "support/nightly.h"
#include "support/process.h"

namespace weft::cluster {
namespace {

using test::IsGone;
using test::Process;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kTimeoutMs = 2500;
#else
constexpr int64_t kTimeoutMs = 1000;
#endif

struct Apart {
    std::string where;
    int ranks;
    int other;
    std::string transport;
    std::string Text() const {
        return fmt::format("rank {} of {} in '{}' over {}", other, ranks, where, transport);
    }
};

Process Start(const Apart& apart, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {CLUSTER_RANK,
                                      "launch",
                                      fmt::format("local={}", apart.ranks),
                                      fmt::format("timeout={}", kTimeoutMs),
                                      "transport=" + apart.transport,
                                      "steps=3",
                                      "patience=600000",
                                      "apart=" + apart.where,
                                      fmt::format("other={}", apart.other)};
    words.insert(words.end(), more.begin(), more.end());
    return Process(words);
}

// gtest's assertions work in any thread here.
void GoApart(const Apart& apart) {
    SCOPED_TRACE(apart.Text());
    Process root = Start(apart);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < apart.ranks; ++rank) {
        const std::string at = fmt::format("rank {} pid ", rank);
        ASSERT_TRUE(root.ReadUntil(at, Deadline::In(20'000))) << root.output();
        pids.push_back(std::atoi(root.output().c_str() + root.output().find(at) + at.size()));
    }
    ASSERT_TRUE(root.ReadUntil("at apart", Deadline::In(20'000))) << root.output();
    const int64_t begin = NowNs();
    EXPECT_EQ(root.Wait(Deadline::In(20'000)), 3) << root.output();
    const int64_t most_ns = (kTimeoutMs + test::LimitMs(1500)) * 1'000'000;
    EXPECT_LE(root.end_ns() - begin, most_ns) << root.output();
    for (const pid_t pid : pids) EXPECT_TRUE(IsGone(pid));
    const std::string& said = root.output();
    const size_t error = said.find("error: ");
    ASSERT_NE(error, std::string::npos) << said;
    EXPECT_EQ(said.find("error: ", error + 1), std::string::npos) << said;
    EXPECT_NE(said.find(" waits for rank ", error), std::string::npos) << said;
    const bool ring = apart.where == "ring";
    if (ring) {
        for (int rank = 0; rank < apart.ranks; ++rank) {
            const std::string where = fmt::format("waits for rank {} in recv #{} of step 9 for ",
                                                  (rank + 1) % apart.ranks, rank);
            EXPECT_NE(said.find(where, error), std::string::npos) << said;
        }
    } else {
        EXPECT_NE(said.find("in all_reduce #12 of step 9 for ", error), std::string::npos) << said;
        const std::string there = apart.where == "call"  ? " in 'checkpoint' for "
                                  : apart.where == "end" ? " in the end of the job for "
                                                         : " in broadcast #3 of step 10 for ";
        EXPECT_NE(said.find(fmt::format("rank {} (host ", apart.other), error), std::string::npos)
            << said;
        EXPECT_NE(said.find(there, error), std::string::npos) << said;
    }
    EXPECT_NE(said.find("Do all ranks have the same data", error), std::string::npos) << said;
}

void GoAllApart(const std::string& where) {
    for (const char* transport : {"shm", "tcp"}) {
        std::vector<std::thread> threads;
        for (const auto& [ranks, other] :
             std::vector<std::pair<int, int>>{{2, 0}, {2, 1}, {3, 0}, {3, 1}, {3, 2}}) {
            // The end of rank 0 ends the job.
            if (where == "end" && other == 0) continue;
            if (where == "ring" && other != 0) continue;
            threads.emplace_back([=] { GoApart({where, ranks, other, std::string(transport)}); });
        }
        for (std::thread& thread : threads) thread.join();
    }
}

TEST(Circle, OfTwoCollectives) {
    GoAllApart("broadcast");
}
TEST(Circle, OfACollectiveAndACallOfTheControlPlane) {
    GoAllApart("call");
}
TEST(Circle, OfACollectiveAndTheEndOfTheJob) {
    GoAllApart("end");
}
TEST(Circle, OfReceives) {
    GoAllApart("ring");
}
TEST(Circle, DeadlockOfASideThread) {
    GoAllApart("beside");
}

TEST(Circle, ThereIsNoneAroundARankThatComputes) {
    for (const char* transport : {"shm", "tcp"}) {
        std::vector<std::thread> threads;
        for (const auto& [ranks, other] :
             weft::test::Some(std::vector<std::pair<int, int>>{{3, 1}, {2, 0}, {2, 1}}, 3)) {
            threads.emplace_back([=] {
                Process root = Start({"compute", ranks, other, std::string(transport)},
                                     {fmt::format("compute_ms={}", 3 * kTimeoutMs)});
                EXPECT_EQ(root.Wait(Deadline::In(30'000)), 0) << root.output();
            });
        }
        for (std::thread& thread : threads) thread.join();
    }
}

}  // namespace
}  // namespace weft::cluster
