// The models that a server of several models loads and unloads, and the times when requests run.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "serve/pool/schedule.h"

namespace weft::serve {
namespace {

using Step = PoolSchedule::Step;
using State = PoolSchedule::State;
using Actions = std::vector<PoolSchedule::Action>;

constexpr uint64_t kPlenty = 1000;

class Pool {
  public:
    explicit Pool(const PoolLimits& limits, const std::vector<uint64_t>& needs = {10, 10, 10})
        : schedule(limits, OfHost(needs)) {}
    static std::vector<MemoryBytes> OfHost(const std::vector<uint64_t>& needs) {
        std::vector<MemoryBytes> all;
        for (const uint64_t bytes : needs) all.push_back({{"", bytes}});
        return all;
    }
    Actions Next(uint64_t free = kPlenty) {
        return schedule.Next(now_ms, [free] { return MemoryBytes{{"", free}}; });
    }
    // Loads the model for a request that runs then.
    void Load(uint64_t request, size_t model) {
        schedule.Arrive(request, model, now_ms);
        ASSERT_EQ(Next(), (Actions{{Step::kLoad, model, 0}}));
        schedule.Loaded(model, now_ms);
        ASSERT_EQ(Next(), (Actions{{Step::kRun, model, request}}));
    }
    void LoadIdle(uint64_t request, size_t model) {
        Load(request, model);
        schedule.Leave(request, {}, now_ms);
    }
    PoolSchedule schedule;
    int64_t now_ms = 0;
};

TEST(PoolScheduleTest, LoadsOnDemandAndRunsAtOnceAfterwards) {
    Pool pool({});
    EXPECT_EQ(pool.Next(), Actions{});
    pool.Load(1, 2);
    EXPECT_EQ(pool.schedule.running(2), 1u);
    pool.schedule.Arrive(2, 2, 5);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kRun, 2, 2}}));
}

TEST(PoolScheduleTest, LoadsOneModelAtATimeInOrderOfArrival) {
    Pool pool({});
    pool.schedule.Arrive(1, 1, 0);
    pool.schedule.Arrive(2, 0, 1);
    pool.schedule.Arrive(3, 2, 2);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kLoad, 1, 0}}));
    EXPECT_EQ(pool.Next(), Actions{});
    pool.schedule.Loaded(1, 3);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kRun, 1, 1}, {Step::kLoad, 0, 0}}));
}

TEST(PoolScheduleTest, UnloadsTheLeastRecentlyUsedIdleModel) {
    Pool pool({.max_loaded = 2});
    pool.LoadIdle(1, 0);
    pool.now_ms = 10;
    pool.LoadIdle(2, 1);
    pool.now_ms = 20;
    pool.schedule.Arrive(3, 0, 20);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kRun, 0, 3}}));
    pool.schedule.Leave(3, {}, 21);
    pool.schedule.Arrive(4, 2, 22);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kUnload, 1, 0}}));
    EXPECT_EQ(pool.Next(), Actions{});  // until the process has ended
    EXPECT_EQ(pool.schedule.blocker(), 1u);
    pool.schedule.Gone(1);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kLoad, 2, 0}}));
}

// A driver of a GPU takes milliseconds to tell its free memory.
TEST(PoolScheduleTest, AsksForFreeMemoryOnlyIfTheLimitsLeaveRoom) {
    Pool pool({.max_loaded = 1});
    pool.Load(1, 0);
    pool.schedule.Arrive(2, 1, 1);
    int asked = 0;
    const auto free = [&] { return ++asked, MemoryBytes{}; };
    EXPECT_EQ(pool.schedule.Next(2, free), Actions{});
    EXPECT_EQ(asked, 0);
    pool.schedule.Leave(1, {}, 3);
    pool.schedule.Next(3, free);
    pool.schedule.Gone(0);
    EXPECT_EQ(pool.schedule.Next(4, free), (Actions{{Step::kLoad, 1, 0}}));
    EXPECT_EQ(asked, 1);
}

TEST(PoolScheduleTest, NeverUnloadsABusyModel) {
    Pool pool({.max_loaded = 1});
    pool.Load(1, 0);
    pool.schedule.Arrive(2, 1, 1);
    EXPECT_EQ(pool.Next(), Actions{});
    EXPECT_EQ(pool.schedule.blocker(), 0u);
    pool.schedule.Leave(1, {}, 2);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kUnload, 0, 0}}));
}

TEST(PoolScheduleTest, ABusyModelDrainsForAWaitingOne) {
    Pool pool({.max_loaded = 1, .fair_ms = 100});
    pool.Load(1, 0);
    pool.schedule.Arrive(2, 1, 0);
    pool.now_ms = 99;
    pool.schedule.Arrive(3, 0, 99);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kRun, 0, 3}}));  // its requests still run
    pool.now_ms = 100;
    EXPECT_EQ(pool.Next(), Actions{});
    pool.schedule.Arrive(4, 0, 101);
    EXPECT_EQ(pool.Next(), Actions{});  // now they wait
    pool.schedule.Leave(1, {}, 102);
    EXPECT_EQ(pool.Next(), Actions{});
    pool.schedule.Leave(3, {}, 103);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kUnload, 0, 0}}));
    pool.schedule.Gone(0);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kLoad, 1, 0}}));
    pool.now_ms = 150;
    pool.schedule.Loaded(1, 150);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kRun, 1, 2}}));
    // Request 4 has waited 149 ms by 250, but model 1 serves at least 100 ms.
    pool.now_ms = 249;
    pool.schedule.Arrive(5, 1, 249);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kRun, 1, 5}}));
    pool.now_ms = 250;
    EXPECT_EQ(pool.Next(), Actions{});
    pool.schedule.Arrive(6, 1, 251);
    EXPECT_EQ(pool.Next(), Actions{});
}

TEST(PoolScheduleTest, CountsTheMemoryOfLoadedModels) {
    Pool pool({.memory = {{"", 25}}}, {10, 20, 10});
    pool.LoadIdle(1, 0);
    pool.LoadIdle(2, 2);
    pool.schedule.Arrive(3, 1, 1);
    // Both models must be unloaded, one after the other.
    EXPECT_EQ(pool.Next(), (Actions{{Step::kUnload, 0, 0}}));
    pool.schedule.Gone(0);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kUnload, 2, 0}}));
    pool.schedule.Gone(2);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kLoad, 1, 0}}));
}

TEST(PoolScheduleTest, RefusesWhatTheMachineHasNoMemoryFor) {
    Pool pool({});
    pool.schedule.Arrive(1, 0, 0);
    EXPECT_EQ(pool.Next(9), (Actions{{Step::kRefuse, 0, 1}}));
    pool.schedule.Arrive(2, 0, 0);
    EXPECT_EQ(pool.Next(10), (Actions{{Step::kLoad, 0, 0}}));
}

TEST(PoolScheduleTest, UnloadsByAge) {
    Pool pool({.keep_ms = 1000});
    pool.LoadIdle(1, 0);
    EXPECT_EQ(pool.schedule.expires_ms(0), 1000);
    pool.now_ms = 999;
    EXPECT_EQ(pool.Next(), Actions{});
    pool.now_ms = 1000;
    EXPECT_EQ(pool.Next(), (Actions{{Step::kUnload, 0, 0}}));
}

TEST(PoolScheduleTest, ARequestChangesTheAge) {
    Pool pool({.keep_ms = 1000});
    pool.Load(1, 0);
    pool.schedule.Leave(1, -1, 0);
    EXPECT_EQ(pool.schedule.expires_ms(0), std::nullopt);
    pool.now_ms = 1'000'000;
    EXPECT_EQ(pool.Next(), Actions{});
    pool.schedule.Arrive(2, 0, pool.now_ms);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kRun, 0, 2}}));
    pool.schedule.Leave(2, 0, pool.now_ms);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kUnload, 0, 0}}));
}

TEST(PoolScheduleTest, AWaitEnds) {
    Pool pool({.max_loaded = 1, .wait_ms = 50});
    pool.Load(1, 0);
    pool.schedule.Arrive(2, 1, 0);
    pool.now_ms = 49;
    EXPECT_EQ(pool.Next(), Actions{});
    pool.now_ms = 50;
    EXPECT_EQ(pool.Next(), (Actions{{Step::kExpire, 1, 2}}));
    EXPECT_EQ(pool.schedule.waiting(), 0u);
    // A load that has begun has its own limit.
    pool.schedule.Leave(1, {}, 50);
    pool.schedule.Arrive(3, 1, 50);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kUnload, 0, 0}}));
    pool.schedule.Gone(0);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kLoad, 1, 0}}));
    pool.now_ms = 1000;
    EXPECT_EQ(pool.Next(), Actions{});
}

TEST(PoolScheduleTest, AFailedLoadIsTriedAgainAfterAPause) {
    Pool pool({});
    pool.schedule.Arrive(1, 0, 0);
    pool.Next();
    EXPECT_EQ(pool.schedule.Failed(0, 0), std::vector<uint64_t>{1});
    pool.schedule.Arrive(2, 0, 1);
    EXPECT_EQ(pool.Next(), Actions{});
    pool.now_ms = 1000;
    EXPECT_EQ(pool.Next(), (Actions{{Step::kLoad, 0, 0}}));
    pool.schedule.Failed(0, 1000);
    pool.schedule.Arrive(3, 0, 1001);
    pool.now_ms = 2999;
    EXPECT_EQ(pool.Next(), Actions{});
    pool.now_ms = 3000;
    EXPECT_EQ(pool.Next(), (Actions{{Step::kLoad, 0, 0}}));
}

TEST(PoolScheduleTest, ARequestThatLeavesWhileItWaitsIsForgotten) {
    Pool pool({.max_loaded = 1});
    pool.Load(1, 0);
    pool.schedule.Arrive(2, 1, 0);
    pool.schedule.Leave(2, {}, 1);
    pool.schedule.Leave(1, {}, 1);
    EXPECT_EQ(pool.Next(), Actions{});  // nobody wants model 1
    EXPECT_EQ(pool.schedule.state(0), State::kLoaded);
}

TEST(PoolScheduleTest, ADeadProcessKeepsItsRequestsCounted) {
    Pool pool({});
    pool.Load(1, 0);
    pool.schedule.Gone(0);
    pool.schedule.Arrive(2, 0, 1);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kLoad, 0, 0}}));
    pool.schedule.Leave(1, {}, 2);
    pool.schedule.Loaded(0, 3);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kRun, 0, 2}}));
    EXPECT_EQ(pool.schedule.running(0), 1u);
}

// Each memory has its own sum.
TEST(PoolScheduleTest, ComparesEachMemory) {
    const MemoryBytes cards{{"", 8}, {"vulkan:0", 24}, {"vulkan:1", 24}};
    const MemoryBytes both{{"", 2}, {"vulkan:0", 21}, {"vulkan:1", 21}};
    PoolSchedule schedule({.memory = cards}, {both, {{"", 2}, {"vulkan:1", 4}}, {{"", 8}}});
    const auto next = [&](MemoryBytes free) { return schedule.Next(0, [&] { return free; }); };
    schedule.Arrive(1, 0, 0);
    EXPECT_EQ(next(cards), (Actions{{Step::kLoad, 0, 0}})) << "42 bytes on two cards of 24";
    schedule.Loaded(0, 0);
    schedule.Arrive(2, 1, 0);
    EXPECT_EQ(next(cards).front(), (PoolSchedule::Action{Step::kRun, 0, 1}));
    EXPECT_EQ(next(cards), Actions{}) << "25 of 24 bytes of vulkan:1";
    schedule.Leave(1, {}, 0);
    EXPECT_EQ(next(cards), (Actions{{Step::kUnload, 0, 0}}));
    schedule.Gone(0);
    EXPECT_EQ(next({{"", 8}, {"vulkan:1", 3}}), (Actions{{Step::kRefuse, 1, 2}}));
}

// Random arrivals, lengths and loads. No model is unloaded while it runs, limits hold, and every
// request runs within a bound.
TEST(PoolScheduleTest, EveryRequestRunsWhateverHappens) {
    for (unsigned seed = 0; seed < 50; ++seed) {
        std::mt19937 random(seed);
        const size_t models = 2 + seed % 4, most = 1 + seed % 2;
        constexpr int64_t kFair = 50, kLongest = 30, kLoad = 20;
        PoolSchedule schedule({.max_loaded = most, .fair_ms = kFair},
                              std::vector<MemoryBytes>(models, {{"", 1}}));
        struct Due {
            int64_t at;
            PoolSchedule::Action action;
        };
        std::vector<Due> due;
        std::map<uint64_t, int64_t> arrived;
        uint64_t last = 0;
        // Each other model may be served before: a wait, a drain, an unload and a load.
        const int64_t bound = static_cast<int64_t>(models) * (2 * kFair + kLongest + 2 * kLoad);
        for (int64_t now = 0; now < 3000; ++now) {
            if (now < 2000 && random() % 3 == 0) {
                schedule.Arrive(++last, random() % 4 == 0 ? random() % models : 0, now);
                arrived[last] = now;
            }
            std::vector<Due> left;
            for (const Due& one : due) {
                if (one.at > now) {
                    left.push_back(one);
                } else if (one.action.step == Step::kLoad) {
                    schedule.Loaded(one.action.model, now);
                } else if (one.action.step == Step::kUnload) {
                    schedule.Gone(one.action.model);
                } else {
                    schedule.Leave(one.action.request, {}, now);
                }
            }
            due = std::move(left);
            for (const auto& action : schedule.Next(now, [] {
                     return MemoryBytes{{"", kPlenty}};
                 })) {
                const int64_t takes = action.step == Step::kRun ? random() % kLongest : kLoad;
                due.push_back({now + takes, action});
                if (action.step == Step::kUnload) {
                    ASSERT_EQ(schedule.running(action.model), 0u) << seed;
                }
                if (action.step == Step::kRun) {
                    ASSERT_LE(now - arrived[action.request], bound) << seed;
                    arrived.erase(action.request);
                }
            }
            size_t occupied = 0;
            for (size_t i = 0; i < models; ++i) {
                occupied += schedule.state(i) == State::kUnloaded ? 0 : 1;
            }
            ASSERT_LE(occupied, most) << seed;
        }
        EXPECT_TRUE(arrived.empty()) << seed;
    }
}

TEST(PoolScheduleTest, ADrainEndsWithItsReason) {
    Pool pool({.max_loaded = 1, .fair_ms = 10});
    pool.Load(1, 0);
    pool.schedule.Arrive(2, 1, 0);
    pool.now_ms = 10;
    EXPECT_EQ(pool.Next(), Actions{});
    pool.schedule.Arrive(3, 0, 11);
    EXPECT_EQ(pool.Next(), Actions{}) << "model 0 drains for model 1";
    pool.schedule.Leave(2, {}, 12);
    EXPECT_EQ(pool.Next(), (Actions{{Step::kRun, 0, 3}}));
}

// In every state, a loaded model makes requests wait only while another model waits for its memory.
TEST(PoolScheduleTest, ModelsDrainForModelsThatWaitOnly) {
    std::mt19937 random(5);
    int drains = 0;
    for (int walk = 0; walk < 300; ++walk) {
        const PoolLimits limits{.max_loaded = 1 + walk % 2u, .wait_ms = 100, .fair_ms = 10};
        Pool pool(limits);
        std::vector<uint64_t> requests;
        uint64_t last = 0;
        for (int turn = 0; turn < 200; ++turn) {
            pool.now_ms += static_cast<int64_t>(random() % 8);
            if (random() % 3 == 0) {
                requests.push_back(++last);
                pool.schedule.Arrive(last, random() % 3, pool.now_ms);
            }
            if (random() % 6 == 0 && !requests.empty()) {
                const auto at = static_cast<std::ptrdiff_t>(random() % requests.size());
                pool.schedule.Leave(requests[static_cast<size_t>(at)], {}, pool.now_ms);
                requests.erase(requests.begin() + at);
            }
            for (size_t model = 0; model < 3; ++model) {
                const State state = pool.schedule.state(model);
                if (state == State::kUnloading && random() % 2 == 0) pool.schedule.Gone(model);
                if (state != State::kLoading || random() % 2 == 0) continue;
                if (random() % 4 == 0) {
                    pool.schedule.Failed(model, pool.now_ms);
                } else {
                    pool.schedule.Loaded(model, pool.now_ms);
                }
            }
            pool.Next();
            pool.Next();  // what waits may have expired
            size_t held = 0, wanted = 0;
            for (size_t model = 0; model < 3; ++model) {
                const bool loaded = pool.schedule.state(model) == State::kLoaded;
                const bool unloaded = pool.schedule.state(model) == State::kUnloaded;
                held += loaded ? pool.schedule.waiting(model) : 0;
                wanted += unloaded ? pool.schedule.waiting(model) : 0;
            }
            ASSERT_TRUE(held == 0 || wanted > 0) << walk << " " << turn;
            drains += held > 0 ? 1 : 0;
        }
    }
    EXPECT_GT(drains, 0);
}

}  // namespace
}  // namespace weft::serve
