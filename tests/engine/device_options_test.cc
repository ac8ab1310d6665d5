// Memory that a rank reports to need of its host and device.
#include "engine/rank/device_options.h"

#include <gtest/gtest.h>

#include "cluster/worker/memory_check.h"
#include "hw/cpu.h"
#include "support/pool_device.h"

namespace weft::engine {
namespace {

using backend::MemoryKind;
using support::PoolDevice;

TEST(DefaultThreads, AreNoMoreThanAQuotaLetsRun) {
    EXPECT_EQ(DefaultThreads(16, std::nullopt), 16);
    EXPECT_EQ(DefaultThreads(16, 4), 4);
    EXPECT_EQ(DefaultThreads(16, 3.9), 3);
    EXPECT_EQ(DefaultThreads(16, 0.1), 1);
    EXPECT_EQ(DefaultThreads(2, 64), 2);
    EXPECT_EQ(DefaultThreads(0, std::nullopt), 1);
}

TEST(MemoryNeeds, DeviceMemoryIsCountedInItsOwnPool) {
    const PoolDevice device({MemoryKind::kDevice, 8000, 5000, 300});
    const auto needs = MemoryNeeds(device, 1000, 70);
    ASSERT_GE(needs.size(), 2u);  // (a container's limit is the third)
    EXPECT_EQ(needs[0].memory, "");
    EXPECT_EQ(needs[0].needed_bytes, 70u);
    EXPECT_GT(needs[0].free_bytes, 0u);
    EXPECT_EQ(needs[1].memory, "vulkan:1");
    EXPECT_EQ(needs[1].needed_bytes, 1000u);
    EXPECT_EQ(needs[1].free_bytes, 5000u);
    // In a later epoch the process already holds some of it: more than these 70 bytes.
    const auto again = MemoryNeeds(device, 1000, 70, true);
    EXPECT_EQ(again[0].needed_bytes, 0u);
    EXPECT_EQ(again[1].needed_bytes, 700u);
}

// Two pods with 40 each on a machine with 100 hold a model of 70, but not of 90, nor on a machine
// with 60.
TEST(MemoryNeeds, EachContainerHasItsLimitAndAllTheMachine) {
    const auto lack = [](uint64_t each, uint64_t machine, bool one_pod) {
        std::vector<cluster::RankNeeds> ranks;
        for (int rank = 0; rank < 2; ++rank) {
            cluster::RankNeeds& own = ranks.emplace_back();
            own.needs = {{"", each, machine}};
            AddGroup(own.needs, {40, fmt::format("/ ({})", one_pod ? 0 : rank)}, each);
        }
        const auto found = cluster::FindLack(ranks);
        return found ? found->memory : std::string("none");
    };
    EXPECT_EQ(lack(35, 100, false), "none");
    EXPECT_EQ(lack(35, 100, true), "the memory limit / (0)");
    EXPECT_EQ(lack(45, 100, false), "the memory limit / (0)");
    EXPECT_EQ(lack(35, 60, false), "");
}

TEST(MemoryNeeds, ALimitCountsWhatTheProcessTakes) {
    const GroupMemory group{2000, "/pod"};
    const auto needed = [&](const backend::MemoryPool& pool) {
        const auto needs = MemoryNeeds(PoolDevice(pool), 1000, 70, false, group);
        EXPECT_EQ(needs.back().memory, "the memory limit /pod");
        EXPECT_EQ(needs.back().free_bytes, 2000u);
        return needs.back().needed_bytes;
    };
    EXPECT_EQ(needed({MemoryKind::kHost, 8000, 5000, 0}), 1070u);
    EXPECT_EQ(needed({MemoryKind::kDevice, 8000, 5000, 0}), 70u);
    EXPECT_EQ(needed({MemoryKind::kUnified, 8000, 5000, 0}), 1070u);
    EXPECT_EQ(needed({MemoryKind::kUnified, 8000, 5000, 0, false}), 70u);  // AMD's
}

TEST(MemoryNeeds, UnifiedMemoryIsTheHosts) {
    for (const MemoryKind kind : {MemoryKind::kHost, MemoryKind::kUnified}) {
        const PoolDevice device({kind, 8000, 5000, 300});
        const auto needs = MemoryNeeds(device, 1000, 70);
        ASSERT_GE(needs.size(), 1u);
        EXPECT_EQ(needs[0].memory, "");
        EXPECT_EQ(needs[0].needed_bytes, 1070u);
        if (needs.size() == 1) {
            EXPECT_EQ(needs[0].free_bytes, 5000u);
        }
        EXPECT_EQ(MemoryNeeds(device, 1000, 70, true)[0].needed_bytes, 770u);
        EXPECT_EQ(MemoryNeeds(device, 100, 70, true)[0].needed_bytes, 0u);  // it holds 300
    }
}

}  // namespace
}  // namespace weft::engine
