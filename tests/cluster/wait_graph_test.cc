// Deadlocked ranks: random waits against a search through all sets of ranks; and messages about a
// circle.
#include "cluster/watch/wait_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace weft::cluster {
namespace {

constexpr int64_t kLeastMs = 1000;

LongWait On(int rank, int64_t still_ms = kLeastMs) {
    return {rank, 3, 12, 0, "all_reduce", still_ms};
}

// No member of `set` (bits) can continue unless another member does first.
bool HoldsItself(const std::vector<RankWaits>& all_waits, unsigned set) {
    for (size_t rank = 0; rank < all_waits.size(); ++rank) {
        if ((set >> rank & 1) == 0) continue;
        const RankWaits& rank_waits = all_waits[rank];
        const auto vain = [&](const LongWait& wait) {
            return wait.still_ms >= kLeastMs && wait.on < static_cast<int>(all_waits.size()) &&
                   (set >> wait.on & 1) != 0;
        };
        bool stuck = false;
        for (const LongWait& wait : rank_waits.waits) stuck = stuck || vain(wait);
        if (rank_waits.waits.empty() && rank_waits.awaits_own && !rank_waits.beside.empty()) {
            stuck = true;
            for (const LongWait& wait : rank_waits.beside) stuck = stuck && vain(wait);
        }
        if (!stuck) return false;
    }
    return true;
}

RankWaits RandomWaits(std::mt19937& random, int ranks) {
    const auto pick = [&](int most) {
        return static_cast<int>(random() % static_cast<unsigned>(most));
    };
    const auto wait = [&] {
        return On(pick(ranks), pick(4) == 0 ? kLeastMs - 1 : kLeastMs + pick(9));
    };
    RankWaits rank_waits;
    const int kind = pick(6);
    if (kind <= 2) rank_waits.waits = {wait()};
    if (kind == 3) rank_waits.waits = {wait(), wait()};
    if (kind == 4) rank_waits.beside = {wait()};  // and the rank computes
    if (kind == 5) {
        rank_waits.beside = {wait(), wait()};
        rank_waits.awaits_own = true;
    }
    return rank_waits;
}

TEST(RankWaits, DeadlockIsTheLargestSetOfRanksThatNoOtherRankCanFree) {
    std::mt19937 random(7);
    int with_circles = 0;
    for (int round = 0; round < 20'000; ++round) {
        const int ranks = 2 + static_cast<int>(random() % 5);
        std::vector<RankWaits> all_waits;
        for (int r = 0; r < ranks; ++r) all_waits.push_back(RandomWaits(random, ranks));
        unsigned largest = 0;
        for (unsigned set = 1; set < 1u << ranks; ++set) {
            if (HoldsItself(all_waits, set)) largest |= set;
        }
        std::vector<int> expected;
        for (int r = 0; r < ranks; ++r) {
            if ((largest >> r & 1) != 0) expected.push_back(r);
        }
        const std::vector<int> stuck = FindDeadlock(all_waits, kLeastMs);
        ASSERT_EQ(stuck, expected) << "round " << round;
        if (stuck.empty()) continue;
        ++with_circles;
        const std::vector<CycleWait> circle = CycleOf(all_waits, stuck);
        ASSERT_FALSE(circle.empty());
        for (size_t i = 0; i < circle.size(); ++i) {
            EXPECT_EQ(circle[i].wait.on, circle[(i + 1) % circle.size()].rank);
            EXPECT_NE(std::ranges::find(stuck, circle[i].rank), stuck.end());
            EXPECT_GE(circle[i].rank, circle[0].rank);
        }
    }
    EXPECT_GT(with_circles, 2000);
    EXPECT_LT(with_circles, 18'000);
}

TEST(RankWaits, RankThatWaitsForAComputingRankIsNotDeadlocked) {
    const RankWaits computes;
    // A pipeline whose first stage computes; an idle server whose ranks all wait for rank 0.
    EXPECT_TRUE(
        FindDeadlock(std::vector<RankWaits>{computes, {{On(0)}}, {{On(1)}}}, kLeastMs).empty());
    EXPECT_TRUE(
        FindDeadlock(std::vector<RankWaits>{computes, {{On(0)}}, {{On(0)}}}, kLeastMs).empty());
    // A side thread waits, but no rank awaits it.
    const RankWaits sends{{}, {On(1)}, false};
    EXPECT_TRUE(FindDeadlock(std::vector<RankWaits>{sends, {{On(0)}}}, kLeastMs).empty());
    const RankWaits awaits_it{{}, {On(1)}, true};
    EXPECT_EQ(FindDeadlock(std::vector<RankWaits>{awaits_it, {{On(0)}}}, kLeastMs),
              (std::vector<int>{0, 1}));
}

TEST(RankWaits, AWaitInWhichSomethingMovedIsNoCircle) {
    EXPECT_TRUE(
        FindDeadlock(std::vector<RankWaits>{{{On(1, 999)}}, {{On(0, 5000)}}}, kLeastMs).empty());
    EXPECT_EQ(
        FindDeadlock(std::vector<RankWaits>{{{On(1, 1000)}}, {{On(0, 5000)}}}, kLeastMs).size(),
        2u);
    // Unknown ranks (of an older epoch) are not waited for.
    EXPECT_TRUE(FindDeadlock(std::vector<RankWaits>{{{On(7)}}, {{On(0)}}}, kLeastMs).empty());
    EXPECT_TRUE(FindDeadlock(std::vector<RankWaits>{}, kLeastMs).empty());
}

TEST(RankWaits, OpsHaveNames) {
    EXPECT_EQ(OpOf({1, 9, 12, 0, "reduce_scatter"}), "reduce_scatter #12 of step 9");
    EXPECT_EQ(OpOf({0, -1, 4, 0, "'checkpoint'"}), "'checkpoint'");
}

}  // namespace
}  // namespace weft::cluster
