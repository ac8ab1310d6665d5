// Requests are read in turn by key.
#include "serve/api/task_queue.h"

#include <gtest/gtest.h>

namespace weft::serve {
namespace {

std::string Order(TaskQueue& queue) {
    std::string order;
    while (!queue.empty()) order += queue.Pop().id;
    return order;
}

TEST(TaskQueue, KeysTakeTurns) {
    TaskQueue queue;
    for (const char* id : {"a", "b", "c", "d"}) queue.Push("busy", {id, {}});
    queue.Push("late", {"1", {}});
    queue.Push("later", {"x", {}});
    queue.Push("late", {"2", {}});
    EXPECT_EQ(queue.waiting(), 7u);
    EXPECT_EQ(queue.waiting_of("busy"), 4u);
    EXPECT_EQ(Order(queue), "a1xb2cd");
    EXPECT_EQ(queue.waiting(), 0u);
    EXPECT_EQ(queue.waiting_of("busy"), 0u);
}

TEST(TaskQueue, WhoComesAgainIsBehindThoseWhoWait) {
    TaskQueue queue;
    queue.Push("one", {"a", {}});
    queue.Push("other", {"1", {}});
    EXPECT_EQ(queue.Pop().id, "a");
    queue.Push("one", {"b", {}});
    EXPECT_EQ(Order(queue), "1b");
}

TEST(TaskQueue, WhatIsTakenOutWaitsNoMore) {
    TaskQueue queue;
    std::vector<uint64_t> numbers;
    for (const char* id : {"a", "b", "c"}) numbers.push_back(queue.Push("one", {id, {}}));
    const uint64_t other = queue.Push("other", {"1", {}});
    EXPECT_EQ(queue.Remove("one", numbers[1])->id, "b");
    EXPECT_FALSE(queue.Remove("one", numbers[1]));
    EXPECT_FALSE(queue.Remove("other", numbers[0]));
    EXPECT_EQ(queue.Remove("other", other)->id, "1");
    EXPECT_FALSE(queue.Remove("other", other));
    EXPECT_EQ(queue.waiting(), 2u);
    EXPECT_EQ(queue.waiting_of("one"), 2u);
    EXPECT_EQ(queue.keys(), 1u);
    EXPECT_EQ(queue.Pop().id, "a");
    EXPECT_FALSE(queue.Remove("one", numbers[0])) << "it runs";
    queue.PushLater("one", {"x", {}});
    EXPECT_TRUE(queue.Remove("one", numbers[2]));
    EXPECT_EQ(Order(queue), "x");
}

TEST(TaskQueue, OfOneKeyInOrder) {
    TaskQueue queue;
    for (const char* id : {"a", "b", "c"}) queue.Push("", {id, {}});
    EXPECT_EQ(Order(queue), "abc");
}

TEST(TaskQueue, RequestsThatAreBegunComeBeforeOthersOfTheirKey) {
    TaskQueue queue;
    for (const char* id : {"a", "b"}) queue.Push("one", {id, {}});
    for (const char* id : {"1", "2"}) queue.Push("other", {id, {}});
    for (const char* id : {"x", "y"}) queue.PushLater("one", {id, {}});
    queue.PushLater("third", {"z", {}});
    EXPECT_EQ(queue.waiting(), 4u);
    EXPECT_EQ(queue.waiting_of("one"), 2u);
    EXPECT_EQ(queue.waiting_of("third"), 0u);
    EXPECT_EQ(Order(queue), "x1zy2ab");
    EXPECT_EQ(queue.waiting(), 0u);
}

}  // namespace
}  // namespace weft::serve
