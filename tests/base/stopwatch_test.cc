// What tests take a hypervisor and the kernel to have kept from running.
#include "support/stopwatch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <sstream>

#include "support/held_up.h"

namespace weft::test {
namespace {

std::vector<int64_t> TicksIn(const std::string& text) {
    std::istringstream stat(text);
    return StolenTicks(stat);
}

TEST(Stopwatch, WhatWasStolenIsTheEighthFigureOfEachProcessor) {
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

TEST(Stopwatch, OnlyWhatAllProcessorsLostIsNoTime) {
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

TEST(Stopwatch, AThreadIsHeldUpWhereNoneOfItsCodeRuns) {
    constexpr unsigned kExiting = 0x4, kOthers = 0x400040;
    EXPECT_TRUE(IsHeldUp({.state = 'D', .flags = kOthers}));
    for (const char state : {'R', 'S', 'T', 't'}) {
        EXPECT_FALSE(IsHeldUp({.state = state, .flags = kOthers})) << state;
        EXPECT_TRUE(IsHeldUp({.state = state, .flags = kOthers | kExiting})) << state;
    }
    for (const char state : {'Z', 'X', '\0'}) {
        EXPECT_FALSE(IsHeldUp({.state = state, .flags = kExiting})) << state;
    }
}

// A child of this process that runs `way` and ends.
template <typename Way>
pid_t Begin(const Way& way) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        way();
        ::_exit(0);
    }
    return pid;
}

void End(pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
}

TEST(Stopwatch, IsNoLaterThanTheClock) {
    const Stopwatch watch;
    ::usleep(20'000);
    const int64_t running_ns = watch.ns();
    EXPECT_GE(watch.wall_ns(), 20'000'000);
    EXPECT_LE(running_ns, watch.wall_ns());
    EXPECT_GE(running_ns, 0);
}

// The flags of a process that lives are none of an end, and say that it has not called execve.
TEST(Stopwatch, ALineOfStatIsRead) {
    constexpr unsigned kExiting = 0x4, kForkedOnly = 0x40;  // of the kernel's linux/sched.h
    const pid_t pid = Begin([] { ::pause(); });
    const StatLine line = StatLineOf(pid);
    EXPECT_EQ(line.parent, ::getpid());
    EXPECT_EQ(line.flags & (kExiting | kForkedOnly), kForkedOnly);
    EXPECT_GE(line.start, StatLineOf(::getpid()).start);
    End(pid);
}

TEST(Stopwatch, WhatTheKernelHoldsUpIsNoTime) {
    constexpr int64_t kHeldNs = 600'000'000;
    const pid_t pid = Begin([] { HoldUpWhile([] { ::usleep(kHeldNs / 1000); }); });
    const Stopwatch watch;
    ::waitpid(pid, nullptr, 0);
    EXPECT_GE(watch.wall_ns(), kHeldNs / 2);
    const int64_t running_ns = watch.ns(), wall_ns = watch.wall_ns();  // in this order
    EXPECT_GE(watch.held_ns(), wall_ns / 2) << wall_ns;
    EXPECT_LE(running_ns, wall_ns / 2);
}

// Also of what has begun since, and by a child of a child that is gone by then.
TEST(Stopwatch, OneThatHasLostItsParentIsSeen) {
    constexpr int64_t kHeldNs = 2'000'000'000;
    const Stopwatch watch;
    const pid_t pid = Begin([] {
        Begin([] { HoldUpWhile([] { ::usleep(kHeldNs / 1000); }); });
        ::usleep(900'000);
    });
    ::waitpid(pid, nullptr, 0);
    const int64_t held_ns = watch.held_ns();
    ::usleep(600'000);
    EXPECT_GE(watch.held_ns(), held_ns + 300'000'000);
}

TEST(Stopwatch, WaitingComputingAndBeingStoppedIsTime) {
    const pid_t sleeps = Begin([] { ::usleep(10'000'000); });
    const pid_t computes = Begin([] {
        for (std::atomic<int> turns = 0;; ++turns) continue;
    });
    const pid_t stopped = Begin([] { ::raise(SIGSTOP); });
    const pid_t zombie = Begin([] {});
    ::usleep(100'000);  // forking is over, and the zombie is one
    const Stopwatch watch;
    ::usleep(500'000);
    EXPECT_LE(watch.held_ns(), watch.wall_ns() / 4);
    for (const pid_t pid : {sleeps, computes, stopped, zombie}) End(pid);
}

}  // namespace
}  // namespace weft::test
