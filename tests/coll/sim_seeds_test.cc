// Collectives under faults, in virtual time, one seed per case (support/sim_run.h states the
// invariants).
//
//     WEFT_SIM_SEED=123 build/tests/coll_tests --gtest_filter='*SimSeeds*/0'   (one, with its log)
//     WEFT_SIM_SEEDS=5000000 build/tests/coll_tests ...                        (seeds per shard)
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/nightly.h"
#include "support/sim_run.h"

namespace weft::coll {
namespace {

constexpr uint64_t kShards = 4;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kDailySeeds = 1'000, kNightlySeeds = 1'000;
#else
constexpr uint64_t kDailySeeds = 7'000, kNightlySeeds = 100'000;
#endif

uint64_t Environment(const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class SimSeeds : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Shards, SimSeeds, ::testing::Range(uint64_t{0}, kShards));

TEST_P(SimSeeds, NoHangNoWrongSumNoWrongName) {
    test::SimRun run;
    const uint64_t one = Environment("WEFT_SIM_SEED", 0);
    if (one != 0) {
        std::string log;
        const test::SimPlan plan = test::PlanOfSeed(one);
        const std::string wrong = run.Run(plan, &log);
        fmt::print("{}{}", plan.Text(), log);
        EXPECT_EQ("", wrong);
        return;
    }
    const uint64_t seeds =
        Environment("WEFT_SIM_SEEDS", weft::test::Nightly() ? kNightlySeeds : kDailySeeds);
    const uint64_t first = 1 + GetParam() * seeds;
    const uint64_t enough = Environment("WEFT_SIM_FAILURES", 5);
    uint64_t failures = 0;
    for (uint64_t seed = first; seed < first + seeds && failures < enough; seed++) {
        const test::SimPlan plan = test::PlanOfSeed(seed);
        const std::string wrong = run.Run(plan);
        if (wrong.empty()) continue;
        failures++;
        ADD_FAILURE() << plan.Text() << wrong << "\nagain: WEFT_SIM_SEED=" << seed;
    }
    RecordProperty("events", static_cast<int>(run.events()));
    RecordProperty("errors", run.errors());
}

// Some ranks wait more often than others for data from other hosts; even so, if a link loses a
// message, that link's ranks are blamed.
TEST(SimLoss, IsOfTheLinkWhereSumsAndPartsGoFromHostToHost) {
    test::SimRun run;
    for (const bool apart : {false, true}) {
        test::SimPlan plan;
        plan.seed = 1;
        plan.ranks = 6;
        plan.latency_ns = 15 * test::kUs;
        plan.fault = test::SimFault::kDrop;
        plan.length_ns = test::SimTask::kNever;
        plan.host =
            apart ? std::array<int, 8>{1, 2, 1, 2, 1, 2} : std::array<int, 8>{1, 1, 1, 2, 2, 2};
        plan.program.resize(2);
        plan.program[0].choice.algorithm = Algorithm::kHierarchical;
        plan.program[0].counts = {0, 2, 0, 3, 1, 8};
        plan.program[1].kind = test::SimKind::kCast;
        plan.program[1].count = 6;
        for (uint64_t i = 0; i < 2 * 6 * 6 * 6 * 8; i++) {
            plan.program[0].kind = i % 2 == 0 ? test::SimKind::kScatterSum : test::SimKind::kGather;
            plan.program[1].root = static_cast<int>(i / 2 % 6);
            plan.a = static_cast<int>(i / 12 % 6);
            plan.b = static_cast<int>(i / 72 % 6);
            plan.at = i / 432;
            if (plan.a == plan.b) continue;
            ASSERT_EQ("", run.Run(plan)) << plan.Text();
        }
    }
    EXPECT_GT(run.errors(), 1000);  // not every link has as many puts to lose
}

}  // namespace
}  // namespace weft::coll
