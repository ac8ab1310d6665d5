// Predictions of a prompt's time from the steps that an engine has run.
#include "engine/batch/prompt_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace weft::engine {
namespace {

// A machine whose steps take row_s per row and pair_s per pair.
struct Machine {
    double row_s = 0, pair_s = 0;
    double Seconds(const PromptPart& part) const {
        return row_s * static_cast<double>(part.rows()) + pair_s * part.pairs();
    }
};

void Read(PromptClock& clock, const Machine& machine, int64_t begin, int64_t end, int64_t rows) {
    for (int64_t at = begin; at < end; at += rows) {
        const PromptPart part{at, std::min(at + rows, end)};
        clock.Learn(std::vector{part}, machine.Seconds(part));
    }
}

TEST(PromptClock, KnowsNothingBeforeTheFirstPrompt) {
    PromptClock clock(1e-5);
    EXPECT_FALSE(clock.Predict({0, 1000}));
    clock.Learn(std::vector<PromptPart>{{0, 3}}, 0.5);  // decoding may be most of it
    clock.Learn({}, 0.5);
    clock.Learn(std::vector<PromptPart>{{0, 512}}, 0);
    EXPECT_FALSE(clock.Predict({0, 1000}));
    EXPECT_FALSE(SecondsBeside(clock, std::vector<PromptPart>{{0, 1000}}, 0));
}

TEST(PromptClock, FirstStepsAndTheModelsFlopsPredictALongPrompt) {
    const Machine machine{1e-3, 2e-8};  // attention doubles the time of a row at position 50,000
    PromptClock clock(machine.pair_s / machine.row_s);
    Read(clock, machine, 0, 1024, 512);
    const PromptPart rest{1024, 100'000};
    EXPECT_NEAR(*clock.Predict(rest) / machine.Seconds(rest), 1, 0.02);
}

TEST(PromptClock, LongPromptsCorrectTheModelsFlops) {
    const Machine machine{1e-3, 8e-8};  // attention is 4 times as slow as its FLOPs
    PromptClock clock(2e-5);
    Read(clock, machine, 0, 30'000, 512);
    const PromptPart rest{30'000, 60'000};
    EXPECT_NEAR(*clock.Predict(rest) / machine.Seconds(rest), 1, 0.1);
    const PromptPart first{0, 512};
    EXPECT_NEAR(*clock.Predict(first) / machine.Seconds(first), 1, 0.3);
}

TEST(PromptClock, FollowsAMachineThatBecomesSlower) {
    const Machine fast{1e-3, 2e-8}, slow{3e-3, 6e-8};
    PromptClock clock(2e-5);
    Read(clock, fast, 0, 50'000, 512);
    Read(clock, slow, 0, 100'000, 512);
    const PromptPart rest{0, 20'000};
    EXPECT_NEAR(*clock.Predict(rest) / slow.Seconds(rest), 1, 0.1);
}

TEST(PromptClock, PromptsBesideShareTheSteps) {
    const Machine machine{1e-3, 0};
    PromptClock clock;
    Read(clock, machine, 0, 1024, 512);
    const std::vector<PromptPart> parts = {{0, 1000}, {0, 5000}, {4000, 4000}};
    EXPECT_NEAR(*SecondsBeside(clock, parts, 0), 2, 1e-6);
    EXPECT_NEAR(*SecondsBeside(clock, parts, 1), 6, 1e-6);
    EXPECT_NEAR(*SecondsBeside(clock, parts, 2), 0, 1e-6);
}

TEST(PromptClock, NeverPredictsNegativeTimes) {
    PromptClock clock(1e-5);
    for (int64_t at = 0; at < 20'000; at += 500) {  // deeper steps are faster: another load ended
        clock.Learn(std::vector<PromptPart>{{at, at + 500}}, 10.0 / static_cast<double>(1 + at));
    }
    EXPECT_GE(*clock.Predict({0, 1000}), 0);
    EXPECT_GE(*clock.Predict({50'000, 60'000}), 0);
}

}  // namespace
}  // namespace weft::engine
