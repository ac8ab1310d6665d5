// Collectives under faults, in virtual time, a seed a case (support/sim_run.h says what must hold).
//
//     WEFT_SIM_SEED=123 build/tests/coll_tests --gtest_filter='*SimSeeds*/0'   one, with every
//     event WEFT_SIM_SEEDS=5000000 ...                                               so many a
//     shard
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/sim_run.h"

namespace weft::coll {
namespace {

constexpr uint64_t kShards = 4;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeedsAShard = 1'000;
#else
constexpr uint64_t kSeedsAShard = 27'000;
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
    const uint64_t seeds = Environment("WEFT_SIM_SEEDS", kSeedsAShard);
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

}  // namespace
}  // namespace weft::coll
