// The waiting line of a worker: order, absence, places kept for killed jobs, and the common order
// of the lines of several workers.
#include "cluster/worker/waiting_line.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "base/deadline.h"

namespace weft::cluster {
namespace {

constexpr int64_t kPeriodNs = 100 * kNsPerMs;
constexpr int64_t kAbsentNs = kAbsentMs * kNsPerMs;

TEST(WaitingLine, AFreePlaceIsTakenAtOnce) {
    WaitingLine line;
    EXPECT_TRUE(line.Call({.ticket = 1}, 1, 0).taken);
    EXPECT_TRUE(line.Call({}, 1, 0).taken);
    EXPECT_EQ(line.size(), 0u);
}

TEST(WaitingLine, PlacesGoToTheFirstInLine) {
    WaitingLine line;
    for (uint64_t ticket : {50, 7, 20}) {
        const auto turn = line.Call({.ticket = ticket}, 0, 0);
        EXPECT_FALSE(turn.taken);
        EXPECT_TRUE(turn.entered);
        EXPECT_EQ(turn.answer.place, static_cast<int>(line.size()));
        EXPECT_EQ(turn.answer.waiting, static_cast<int>(line.size()));
    }
    EXPECT_FALSE(line.Call({.ticket = 7}, 1, kPeriodNs).taken);
    EXPECT_FALSE(line.Call({.ticket = 9}, 1, kPeriodNs).taken) << "a new caller";
    EXPECT_FALSE(line.Call({}, 1, kPeriodNs).taken) << "a caller that does not wait";
    EXPECT_EQ(line.Call({.ticket = 20}, 1, kPeriodNs).answer.place, 3);
    EXPECT_TRUE(line.Call({.ticket = 50}, 1, kPeriodNs).taken);
    const auto next = line.Call({.ticket = 20}, 0, kPeriodNs);
    EXPECT_EQ(next.answer.place, 2);
    EXPECT_EQ(next.answer.waiting, 3);
    EXPECT_FALSE(next.entered);
    // Two free places: for the first two.
    EXPECT_FALSE(line.Call({.ticket = 9}, 2, kPeriodNs).taken);
    EXPECT_TRUE(line.Call({.ticket = 20}, 2, kPeriodNs).taken);
    EXPECT_TRUE(line.Call({.ticket = 7}, 1, kPeriodNs).taken);
}

TEST(WaitingLine, AbsentCallerLeavesTheLine) {
    WaitingLine line;
    line.Call({.ticket = 1}, 0, 0);
    line.Call({.ticket = 2}, 0, 0);
    int64_t now = 0;
    for (; now < kAbsentNs - kPeriodNs; now += kPeriodNs) {
        EXPECT_EQ(line.Call({.ticket = 2}, 0, now).answer.place, 2);
    }
    EXPECT_EQ(line.Call({.ticket = 2}, 0, kAbsentNs).answer.place, 1);
    // A caller that calls again keeps its place by its number.
    EXPECT_EQ(line.Call({.ticket = 1, .number = 1}, 0, kAbsentNs).answer.place, 1);
    EXPECT_EQ(line.Call({.ticket = 2}, 0, kAbsentNs).answer.place, 2);
}

TEST(WaitingLine, AskingCallerTakesNoPlace) {
    WaitingLine line;
    const auto asks = line.Call({.take = false}, 1, 0);
    EXPECT_FALSE(asks.taken);
    EXPECT_TRUE(asks.answer.free);
    EXPECT_EQ(line.size(), 0u);
    // A job of several workers: the place is kept until it takes all of them.
    const auto looks = line.Call({.ticket = 3, .take = false}, 1, 0);
    EXPECT_FALSE(looks.taken);
    EXPECT_TRUE(looks.answer.free);
    EXPECT_FALSE(line.Call({.ticket = 4}, 1, 0).taken);
    EXPECT_FALSE(line.Call({.take = false}, 1, 0).answer.free);
    EXPECT_TRUE(line.Call({.ticket = 3}, 1, 0).taken);
}

TEST(WaitingLine, AKilledRanksPlaceIsKept) {
    WaitingLine line;
    line.Call({.ticket = 1}, 0, 0);
    line.Keep(2, 5 * kAbsentNs);
    int64_t now = 0;
    for (; now < 4 * kAbsentNs; now += kPeriodNs) {
        EXPECT_FALSE(line.Call({.ticket = 1}, 1, now).taken);
    }
    EXPECT_TRUE(line.Call({.ticket = 2}, 1, now).taken);
    EXPECT_TRUE(line.Call({.ticket = 1}, 1, now).taken);
    // A job that does not come back.
    line.Call({.ticket = 1}, 0, now);
    line.Keep(2, now + kPeriodNs);
    EXPECT_FALSE(line.Call({.ticket = 1}, 1, now).taken);
    EXPECT_TRUE(line.Call({.ticket = 1}, 1, now + kPeriodNs).taken);
    line.Keep(0, now + kAbsentNs);
    EXPECT_EQ(line.size(), 0u);
}

// A job that was killed while it waited for other workers must not have different orders.
TEST(WaitingLine, AKeptPlaceTakesTheNumberOfItsJob) {
    WaitingLine line;
    line.Call({.ticket = 1, .number = 4}, 0, 0);
    line.Keep(2, kAbsentNs);
    EXPECT_EQ(line.Call({.ticket = 2}, 0, 0).answer.place, 1);
    EXPECT_EQ(line.Call({.ticket = 2, .number = 9}, 0, 0).answer.place, 2);
}

TEST(WaitingLine, IsBounded) {
    WaitingLine line;
    for (uint64_t ticket = 1; ticket <= kMostInLine + 10; ++ticket) {
        line.Call({.ticket = ticket}, 0, 0);
    }
    EXPECT_EQ(line.size(), kMostInLine);
    EXPECT_EQ(line.Call({.ticket = 1'000'000}, 0, 0).answer.place, 0);
    WaitingLine other;
    const uint64_t most = std::numeric_limits<uint64_t>::max();
    other.Call({.ticket = 1, .number = most}, 0, 0);
    EXPECT_EQ(other.Call({.ticket = 2}, 0, 0).answer.place, 2) << "numbers never wrap";
}

// Two jobs reach two workers in different orders. If each job uses the larger of its two numbers,
// both lines have one order, so one job gets both places.
TEST(WaitingLine, TheLinesOfTwoWorkersHaveOneOrder) {
    for (const uint64_t first : {10, 30}) {
        std::array<WaitingLine, 2> workers;
        std::array<uint64_t, 2> tickets = {first, 20}, numbers = {};
        workers[1].Call({.ticket = 99}, 0, 0);  // its numbers are larger
        const auto call = [&](size_t worker, size_t job) {
            const auto turn =
                workers[worker].Call({tickets[job], numbers[job], false}, 1, kAbsentNs);
            numbers[job] = std::max(numbers[job], turn.answer.number);
            return turn.answer.place;
        };
        call(0, 0);
        call(1, 1);
        call(0, 1);
        call(1, 0);
        for (size_t job : {0, 1}) {
            for (size_t worker : {0, 1}) call(worker, job);
        }
        for (size_t job : {0, 1}) EXPECT_EQ(call(0, job), call(1, job));
    }
}

TEST(WaitingLine, TicketsDiffer) {
    EXPECT_NE(NewTicket(), 0u);
    EXPECT_NE(NewTicket(), NewTicket());
}

}  // namespace
}  // namespace weft::cluster
