// What tests take a hypervisor to have taken of their machine.
#include "support/slowness.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

namespace weft::test {
namespace {

std::vector<int64_t> TicksIn(const std::string& text) {
    std::istringstream stat(text);
    return StolenTicks(stat);
}

TEST(Slowness, WhatWasStolenIsTheEighthFigureOfEachProcessor) {
    EXPECT_EQ(TicksIn("cpu  1117113 3242 127188 37404 267 0 1641 3801 0 0\n"
                      "cpu0 557228 1636 62937 14562 25 0 683 1879 0 0\n"
                      "cpu1 559869 1605 64210 10154 239 0 956 1922 0 0\n"
                      "intr 13846694 0 0 9 0 0 0 0 0 0 0 0 0 0\n"
                      "ctxt 41942353\n"),
              (std::vector<int64_t>{1879, 1922}));
    // Of a kernel without that figure, and of a system without the file.
    EXPECT_EQ(TicksIn("cpu  1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6 7\n"), std::vector<int64_t>{0});
    EXPECT_TRUE(TicksIn("").empty());
}

TEST(Slowness, OnlyWhatAllProcessorsLostIsNoTime) {
    constexpr int64_t kTickNs = 10'000'000;
    EXPECT_EQ(StolenNs({1879, 1922}, {2786, 2832}), 907 * kTickNs);
    EXPECT_EQ(StolenNs({1879, 1922}, {2000, 1930}), 8 * kTickNs);
    EXPECT_EQ(StolenNs({1879, 1922}, {1879, 2832}), 0);
    EXPECT_EQ(StolenNs({1879, 1922}, {1870, 1922}), 0);
    // One was taken away, one has come; nothing is known.
    EXPECT_EQ(StolenNs({1879, 1922}, {1980}), 0);
    EXPECT_EQ(StolenNs({1879}, {1980, 500}), 0);
    EXPECT_EQ(StolenNs({}, {}), 0);
}

TEST(Slowness, AStopwatchIsNoLaterThanTheClock) {
    const Stopwatch watch;
    ::usleep(20'000);
    const int64_t running_ns = watch.ns();
    EXPECT_GE(watch.wall_ns(), 20'000'000);
    EXPECT_LE(running_ns, watch.wall_ns());
    EXPECT_GE(running_ns, 0);
}

}  // namespace
}  // namespace weft::test
