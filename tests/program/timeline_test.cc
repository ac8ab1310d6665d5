// The timeline of a list, against sums by hand.
#include "program/timeline.h"

#include <gtest/gtest.h>

namespace weft::program {
namespace {

// Two units of 1000 weights: a is gathered, then b; one product reads each of them.
struct List {
    Program program;
    std::vector<OpCost> costs;

    ValueId Value(const std::string& name, int64_t elements, Storage storage) {
        return program.AddValue({name, DType::kF32, {elements}, storage, {}});
    }
    void Add(OpAttributes attributes, std::vector<ValueId> in, ValueId out, OpCost cost) {
        program.ops.push_back({std::move(attributes), std::move(in), {out}});
        costs.push_back(cost);
    }
};

List TwoUnits() {
    List list;
    const ValueId x = list.Value("x", 8, Storage::kInput);
    const ValueId share = list.Value("share", 500, Storage::kWeight);
    const ValueId a = list.Value("a", 1000, Storage::kActivation);
    const ValueId b = list.Value("b", 1000, Storage::kActivation);
    const ValueId y = list.Value("y", 8, Storage::kActivation);
    const ValueId z = list.Value("z", 8, Storage::kActivation);
    const ValueId sum = list.Value("sum", 500, Storage::kGradient);
    const GatherShares gather{{500, 500}, 0};
    list.Add(gather, {share}, a, {0, 0, 0, 4000});
    list.Add(gather, {share}, b, {0, 0, 0, 4000});
    list.Add(Add{}, {x, a}, y, {300, 0, 0, 0});
    list.Add(Add{}, {y, b}, z, {100, 0, 5000, 0});
    list.Add(ReduceShares{{500, 500}, 0}, {b, sum}, sum, {0, 0, 0, 4000});
    list.Add(Scale{}, {z}, z, {50, 0, 0, 0});
    return list;
}

MachineRates Rates(bool overlap) {
    MachineRates rates;
    rates.flops_per_s = 100;
    rates.memory_bytes_per_s = 1000;
    rates.wire = [](const Op&, int64_t bytes) { return static_cast<double>(bytes) / 2000; };
    rates.overlap = overlap;
    return rates;
}

TEST(Timeline, OneAfterTheOther) {
    const List list = TwoUnits();
    const Timeline line = WalkTimeline(list.program, list.costs, Rates(false));
    EXPECT_DOUBLE_EQ(line.compute, 3 + 5 + 0.5);  // the second one writes for longer than it adds
    EXPECT_DOUBLE_EQ(line.wire, 6);
    EXPECT_DOUBLE_EQ(line.whole, 14.5);
    EXPECT_DOUBLE_EQ(line.waited(), 6);
}

// 0-2 a comes, 2-4 b comes beside 2-5 the first op, 5-10 the second, 10-12 the sum beside 10-10.5.
TEST(Timeline, BesideEachOther) {
    const List list = TwoUnits();
    const Timeline line = WalkTimeline(list.program, list.costs, Rates(true));
    EXPECT_DOUBLE_EQ(line.compute, 8.5);
    EXPECT_DOUBLE_EQ(line.wire, 6);
    EXPECT_DOUBLE_EQ(line.whole, 12);
}

// A slow wire: 0-20 a, 20-40 b, then the first op would have begun at 20.
TEST(Timeline, AnOpWaitsForWhatItReads) {
    const List list = TwoUnits();
    MachineRates rates = Rates(true);
    rates.wire = [](const Op&, int64_t bytes) { return static_cast<double>(bytes) / 200; };
    const Timeline line = WalkTimeline(list.program, list.costs, rates);
    EXPECT_DOUBLE_EQ(line.whole, 40 + 5 + 20);
}

}  // namespace
}  // namespace weft::program
