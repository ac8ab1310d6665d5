// Costs of steps of several sequences, and experts in expectation.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "program/cost.h"

namespace weft::program {
namespace {

TEST(DistinctExperts, OneRowMeetsAsManyAsItChooses) {
    const ExpertLoad load = DistinctExperts(128, 128, 8, 1);
    EXPECT_DOUBLE_EQ(load.mean, 8);
    EXPECT_DOUBLE_EQ(load.most, 8);
    EXPECT_DOUBLE_EQ(DistinctExperts(32, 128, 8, 1).mean, 2);
    EXPECT_NEAR(DistinctExperts(128, 128, 8, 10000).most, 128, 1e-6);
}

// Against choices that are drawn: the mean to 1 %, the unluckiest group's to 10 %.
TEST(DistinctExperts, AsDrawn) {
    std::mt19937 random(1);
    for (const auto& [all, chosen, groups, rows] :
         {std::tuple(128, 8, 4, 1), std::tuple(128, 8, 4, 8), std::tuple(256, 8, 8, 1),
          std::tuple(256, 8, 8, 32), std::tuple(32, 4, 2, 3), std::tuple(128, 8, 1, 8)}) {
        constexpr int kTrials = 4000;
        double mean = 0, most = 0;
        for (int trial = 0; trial < kTrials; ++trial) {
            std::vector<std::set<int>> met(static_cast<size_t>(groups));
            for (int row = 0; row < rows; ++row) {
                std::set<int> choice;
                while (static_cast<int>(choice.size()) < chosen) {
                    choice.insert(static_cast<int>(random() % static_cast<unsigned>(all)));
                }
                for (int e : choice) met[static_cast<size_t>(e * groups / all)].insert(e);
            }
            size_t largest = 0;
            for (const auto& group : met) {
                mean += static_cast<double>(group.size()) / groups / kTrials;
                largest = std::max(largest, group.size());
            }
            most += static_cast<double>(largest) / kTrials;
        }
        const ExpertLoad load = DistinctExperts(all / groups, all, chosen, rows);
        EXPECT_NEAR(load.mean / mean, 1, 0.01) << all << " " << groups << " " << rows;
        EXPECT_NEAR(load.most / most, 1, 0.10) << all << " " << groups << " " << rows;
    }
}

// A product of 16 rows by 8 columns: weights are read once for all sequences.
TEST(StepCost, WeightsCountOnce) {
    Program program;
    const ValueId x = program.AddValue({"x", DType::kF32, {kTokens, 8}, Storage::kActivation});
    const ValueId w = program.AddValue({"w", DType::kF32, {16, 8}, Storage::kWeight});
    program.Emit(MatMul{}, {x, w}, "y", {kTokens, 16});
    const OpCost one = Total(Cost(program, StepShape{1, 1, 1, 100}));
    const OpCost four = Total(Cost(program, StepShape{4, 1, 4, 100}));
    EXPECT_EQ(one, Total(Cost(program, 1, 1, 100)));
    EXPECT_EQ(four.flops, 4 * one.flops);
    EXPECT_EQ(one.read_bytes, 16 * 8 * 4 + 8 * 4);
    EXPECT_EQ(four.read_bytes, 16 * 8 * 4 + 4 * 8 * 4);
}

}  // namespace
}  // namespace weft::program
