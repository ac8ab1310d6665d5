// Requests are processed in turn by key.
#include "serve/api/task_queue.h"

#include <gtest/gtest.h>

namespace weft::serve {
namespace {

std::string Order(TaskQueue& queue) {
    std::string order;
    while (queue.ready()) {
        const auto [key, task] = queue.Pop();
        order += task.id;
        queue.Done(key);
    }
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

TEST(TaskQueue, AKeyThatReturnsGoesBehindWaitingKeys) {
    TaskQueue queue;
    queue.Push("one", {"a", {}});
    queue.Push("other", {"1", {}});
    EXPECT_EQ(queue.Pop().second.id, "a");
    queue.Push("one", {"b", {}});
    queue.Done("one");
    EXPECT_EQ(Order(queue), "1b");
}

TEST(TaskQueue, RemovedTasksDoNotRun) {
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
    EXPECT_EQ(queue.Pop().second.id, "a");
    EXPECT_FALSE(queue.Remove("one", numbers[0])) << "it runs";
    queue.PushLater("one", {"x", {}});
    EXPECT_TRUE(queue.Remove("one", numbers[2]));
    EXPECT_FALSE(queue.ready());
    queue.Done("one");
    EXPECT_EQ(Order(queue), "x");
    EXPECT_EQ(queue.keys(), 0u);
}

// A key uses one thread, however many there are.
TEST(TaskQueue, AKeyHasOneTaskAtATime) {
    TaskQueue queue;
    for (const char* id : {"a", "b"}) queue.Push("one", {id, {}});
    queue.PushLater("one", {"x", {}});
    queue.Push("other", {"1", {}});
    EXPECT_EQ(queue.Pop().second.id, "x");
    EXPECT_EQ(queue.Pop().second.id, "1");
    EXPECT_FALSE(queue.ready()) << "both have one that runs";
    queue.Done("other");
    EXPECT_FALSE(queue.ready());
    queue.Push("other", {"2", {}});
    EXPECT_TRUE(queue.ready());
    queue.Done("one");
    EXPECT_EQ(Order(queue), "2ab");
}

TEST(TaskQueue, SmallTasksOfAKeyGoFirst) {
    TaskQueue queue;
    queue.Push("one", {"L", {}, 1000});
    queue.Push("one", {"m", {}, 100});
    queue.Push("other", {"1", {}, 5000});
    queue.Push("one", {"s", {}, 1});
    queue.Push("one", {"t", {}, 1});
    EXPECT_EQ(Order(queue), "s1tmL");
    // A large task waits for as many bytes of small ones as it has.
    queue.Push("one", {"L", {}, 1000});
    std::string order;
    for (int i = 0; i < 30; ++i) {
        queue.Push("one", {"s", {}, 100});
        const auto [key, task] = queue.Pop();
        order += task.id;
        queue.Done(key);
    }
    EXPECT_GE(order.find('L'), 8u);
    EXPECT_LE(order.find('L'), 11u);
}

TEST(TaskQueue, TasksOfAKeyRunInOrder) {
    TaskQueue queue;
    for (const char* id : {"a", "b", "c"}) queue.Push("", {id, {}});
    EXPECT_EQ(Order(queue), "abc");
}

TEST(TaskQueue, FollowUpTasksGoFirst) {
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
