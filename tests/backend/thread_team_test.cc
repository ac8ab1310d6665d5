#include "backend/thread_team.h"

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <vector>

#include "hw/cpu.h"
#include "support/wait.h"

namespace weft::backend {
namespace {

// CPU time of the other threads of this process.
double CpuSecondsOfOthers() {
    const auto seconds_of = [](clockid_t clock) {
        timespec t;
        ::clock_gettime(clock, &t);
        return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
    };
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID) - seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

// Each part adds the others' plain numbers after a barrier: wrong without it, and a race for the
// thread sanitizer.
struct Rounds {
    ThreadTeam* team;
    int rounds;
    std::vector<int64_t> numbers;
};

void RunRounds(void* context, int part) {
    auto& rounds = *static_cast<Rounds*>(context);
    const int parts = rounds.team->size();
    for (int i = 0; i < rounds.rounds; ++i) {
        rounds.numbers[static_cast<size_t>((part + i) % parts)] += 1;
        rounds.team->Barrier();
    }
}

// Otherwise a later job in the same process would see one core for all of its ranks.
TEST(ThreadTeam, ItsOwnersCoresComeBack) {
    const std::vector<int> before = AllowedCores();
    {
        const ThreadTeam team({1, {before.back()}, false});
        EXPECT_EQ(AllowedCores(), std::vector<int>{before.back()});
    }
    EXPECT_EQ(AllowedCores(), before);
    { const ThreadTeam team({2, {}, true}); }
    EXPECT_EQ(AllowedCores(), before);
}

// Otherwise two programs of one thread each on a host with two cores might share one core.
TEST(ThreadTeam, FewerThreadsThanCoresAreKeptOnAllOfThem) {
    const std::vector<int> cores = AllowedCores();
    if (cores.size() < 2) GTEST_SKIP() << "one core";
    struct Seen {
        std::vector<std::vector<int>> cores;
    };
    for (const size_t threads : {cores.size() - 1, cores.size()}) {
        ThreadTeam team({static_cast<int>(threads), cores, false});
        Seen seen{std::vector<std::vector<int>>(threads)};
        team.Run(
            [](void* context, int part) {
                static_cast<Seen*>(context)->cores[static_cast<size_t>(part)] = AllowedCores();
            },
            &seen);
        for (size_t i = 0; i < threads; ++i) {
            EXPECT_EQ(seen.cores[i], threads < cores.size() ? cores : std::vector{cores[i]});
        }
    }
}

TEST(ThreadTeam, BarriersOrderWrites) {
    for (int threads : {1, 2, 3, 5}) {
        ThreadTeam team({threads, {}, threads > 2, threads > 3});
        for (int run = 0; run < 20; ++run) {
            Rounds rounds{&team, 200, std::vector<int64_t>(static_cast<size_t>(threads))};
            team.Run(RunRounds, &rounds);
            for (int64_t number : rounds.numbers) EXPECT_EQ(number, 200);
        }
    }
}

TEST(ThreadTeam, IdleDrawsNoPower) {
    ThreadTeam team({3, {}, false});
    Rounds rounds{&team, 10, std::vector<int64_t>(3)};
    team.Run(RunRounds, &rounds);
    ASSERT_TRUE(test::OthersSleep());  // after the spin
    const double before = CpuSecondsOfOthers();
    test::ComputeMs(500);
    EXPECT_LT(CpuSecondsOfOthers() - before, 0.005);  // 1 % of a core
}

TEST(ThreadTeam, WakesSleepers) {
    for (const bool rare : {false, true}) {
        ThreadTeam team({2, {}, true, rare});
        for (int run = 0; run < 5; ++run) {
            ASSERT_TRUE(test::OthersSleep());  // after spin and yields
            Rounds rounds{&team, 3, std::vector<int64_t>(2)};
            team.Run(RunRounds, &rounds);
            EXPECT_EQ(rounds.numbers[0] + rounds.numbers[1], 6);
        }
    }
}

}  // namespace
}  // namespace weft::backend
