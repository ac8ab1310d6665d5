// Slots of llama-server's API: which one a request without a number gets.
#include "serve/api/llama/slots.h"

#include <gtest/gtest.h>

#include <latch>
#include <set>
#include <thread>

namespace weft::serve {
namespace {

engine::Request RequestOf(int32_t first, size_t tokens) {
    engine::Request request;
    request.prompt.assign(tokens, first);
    return request;
}

TEST(SlotTableTest, AnIdleSlotWithTheSameBeginningIsChosen) {
    const auto table = std::make_shared<SlotTable>(3, 64, false);
    for (const int32_t first : {1, 2}) {
        const auto use = table->Begin("a", -1, RequestOf(first, 10));
        EXPECT_EQ(use->id(), first - 1);
        use->Add(7);
    }
    EXPECT_EQ(table->TextOf("a", 0).tokens.size(), 11u);
    const auto again = table->Begin("a", -1, RequestOf(1, 20));
    EXPECT_EQ(again->id(), 0);
    EXPECT_EQ(table->Begin("a", -1, RequestOf(1, 20))->id(), 2) << "the first one is busy";
    EXPECT_EQ(table->Begin("b", -1, RequestOf(1, 20))->id(), 0) << "another key's slots";
    EXPECT_EQ(table->Erase("a", 1), 11);
    EXPECT_TRUE(table->TextOf("a", 1).tokens.empty());
    table->Put("a", 1, {{5, 6}, 2});
    EXPECT_EQ(table->TextOf("a", 1).adapter, 2);
}

// A slot's number tells a request nothing about texts that have another salt.
TEST(SlotTableTest, TextsOfOtherSaltsAreNotCompared) {
    const auto table = std::make_shared<SlotTable>(3, 64, false);
    const auto slot_of = [&](const char* tenant) {
        engine::Request request = RequestOf(1, 10);
        request.tenant = tenant;
        return table->Begin("a", -1, request)->id();
    };
    EXPECT_EQ(slot_of("alice"), 0);
    EXPECT_EQ(slot_of("bob"), 1);
    EXPECT_EQ(slot_of("alice"), 0);
    EXPECT_EQ(slot_of(""), 2);
    EXPECT_EQ(table->TextOf("a", 1).tenant, "bob");
    table->Put("a", 1, {{5, 6}, 0, "carol"});
    EXPECT_EQ(table->TextOf("a", 1).tenant, "carol");
}

// Requests at the same time get slots of their own.
TEST(SlotTableTest, RequestsAtTheSameTimeShareNoSlot) {
    constexpr size_t kThreads = 4;
    const auto table = std::make_shared<SlotTable>(kThreads, 64, false);
    for (int round = 0; round < 200; ++round) {
        std::vector<std::shared_ptr<SlotTable::Use>> uses(kThreads);
        std::latch begin(kThreads);
        std::vector<std::thread> threads;
        for (size_t i = 0; i < kThreads; ++i) {
            threads.emplace_back([&, i] {
                begin.arrive_and_wait();
                uses[i] = table->Begin("a", -1, RequestOf(3, 5000));
            });
        }
        for (std::thread& thread : threads) thread.join();
        std::set<int64_t> ids;
        for (const auto& use : uses) ids.insert(use->id());
        EXPECT_EQ(ids.size(), kThreads);
    }
}

}  // namespace
}  // namespace weft::serve
