// Stored responses: limits, access by owner, and which ones are dropped.
#include "serve/api/openai/response_store.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace weft::serve {
namespace {

ResponseStore::Stored OfBytes(size_t bytes) {
    return {Json{{"id", "x"}}, std::make_shared<const Json>(Json::array({std::string(bytes, 'a')})),
            static_cast<int64_t>(bytes) + 200};
}

TEST(ResponseStore, SmallPartsCount) {
    const Json text(std::string(100'000, 'a'));
    EXPECT_GE(HeldBytes(text), 100'000);
    EXPECT_LE(HeldBytes(text), 101'000);
    Json lists = Json::array();
    for (int i = 0; i < 1000; ++i) lists.push_back(Json::object());
    EXPECT_GE(HeldBytes(lists), 40'000) << "of 3000 letters";
    EXPECT_GE(HeldBytes({{"a", lists}, {"b", lists}}), 2 * HeldBytes(lists));
}

TEST(ResponseStore, EachOwnerSeesItsOwn) {
    ResponseMemory store(10, 1 << 20);
    store.Put("alice", "r1", OfBytes(5));
    ASSERT_NE(store.Get("alice", "r1"), nullptr);
    EXPECT_EQ(store.Get("alice", "r1")->items->at(0), "aaaaa");
    EXPECT_EQ(store.Get("bob", "r1"), nullptr);
    EXPECT_EQ(store.Get("", "r1"), nullptr);
    EXPECT_FALSE(store.Remove("bob", "r1"));
    EXPECT_TRUE(store.Remove("alice", "r1"));
    EXPECT_FALSE(store.Remove("alice", "r1"));
    EXPECT_EQ(store.count(), 0);
    EXPECT_EQ(store.bytes(), 0);
}

TEST(ResponseStore, DropsTheOldest) {
    ResponseMemory store(3, 1 << 20);
    for (int i = 0; i < 5; ++i) store.Put("a", std::to_string(i), OfBytes(1));
    EXPECT_EQ(store.count(), 3);
    EXPECT_EQ(store.Get("a", "1"), nullptr);
    EXPECT_NE(store.Get("a", "2"), nullptr);
    store.Put("a", "2", OfBytes(2));  // stored again: now the newest
    store.Put("a", "5", OfBytes(1));
    EXPECT_NE(store.Get("a", "2"), nullptr);
    EXPECT_EQ(store.Get("a", "3"), nullptr);
}

TEST(ResponseStore, BytesAreBounded) {
    ResponseMemory store(1000, 30'000);
    for (int i = 0; i < 100; ++i) {
        store.Put("a", std::to_string(i), OfBytes(1000));
        EXPECT_LE(store.bytes(), 30'000);
    }
    EXPECT_GT(store.count(), 5);
    const int64_t before = store.count();
    store.Put("a", "huge", OfBytes(30'000));
    EXPECT_EQ(store.Get("a", "huge"), nullptr) << "there is no room for it";
    EXPECT_EQ(store.count(), before) << "and nobody makes any";
}

TEST(ResponseStore, DropsFromTheLargestOwner) {
    ResponseMemory store(1000, 30'000);
    store.Put("small", "s", OfBytes(100));
    for (int i = 0; i < 100; ++i) store.Put("large", std::to_string(i), OfBytes(1000));
    EXPECT_NE(store.Get("small", "s"), nullptr);
}

TEST(ResponseStore, ManySmallResponsesDropNoOtherOwners) {
    ResponseMemory store(10, 1 << 20);
    store.Put("large", "l", OfBytes(100'000));
    for (int i = 0; i < 100; ++i) store.Put("many", std::to_string(i), OfBytes(1));
    EXPECT_NE(store.Get("large", "l"), nullptr);
    EXPECT_EQ(store.count(), 10);
}

TEST(ResponseStore, AResponseInUseStaysValid) {
    ResponseMemory store(1, 1 << 20);
    store.Put("a", "1", OfBytes(7));
    const auto held = store.Get("a", "1");
    store.Put("a", "2", OfBytes(1));
    EXPECT_EQ(store.Get("a", "1"), nullptr);
    EXPECT_EQ(held->items->at(0), "aaaaaaa");
}

TEST(ResponseStore, LimitZeroStoresNothing) {
    ResponseMemory store(0, 1 << 20);
    store.Put("a", "1", OfBytes(1));
    EXPECT_FALSE(store.on());
    EXPECT_EQ(store.count(), 0);
}

TEST(ResponseStore, ConcurrentUse) {
    ResponseMemory store(50, 100'000);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&store, t] {
            const std::string owner = std::to_string(t % 2);
            for (int i = 0; i < 300; ++i) {
                store.Put(owner, owner + "-" + std::to_string(i), OfBytes(400));
                if (i % 3 == 0) store.Remove(owner, owner + "-" + std::to_string(i / 2));
                if (const auto found = store.Get(owner, owner + "-" + std::to_string(i))) {
                    EXPECT_EQ(found->items->size(), 1u);
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LE(store.count(), 50);
    EXPECT_LE(store.bytes(), 100'000);
}

}  // namespace
}  // namespace weft::serve
