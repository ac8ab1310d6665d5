// The memory type that a buffer gets on each kind of machine. The tables are those of real drivers;
// no device is needed.
#include "gpu/vulkan/memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace weft::gpu {
namespace {

constexpr VkMemoryPropertyFlags kL = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags kHc =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags kC = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;

std::vector<uint32_t> Types(const std::vector<VkMemoryPropertyFlags>& flags, Place place,
                            bool unified, uint32_t allowed = ~0u) {
    VkPhysicalDeviceMemoryProperties memory{};
    memory.memoryTypeCount = static_cast<uint32_t>(flags.size());
    for (size_t i = 0; i < flags.size(); ++i) memory.memoryTypes[i].propertyFlags = flags[i];
    return MemoryTypesFor(memory, allowed, place, unified);
}

using List = std::vector<uint32_t>;

TEST(GpuMemory, ACardKeepsItsWindow) {
    // RADV on a card whose host-visible window is 256 MiB, or all memory (resizable BAR).
    const std::vector<VkMemoryPropertyFlags> radv = {kL, kHc, kL | kHc, kHc | kC};
    EXPECT_EQ(Types(radv, Place::kDevice, false), (List{0, 2}));
    EXPECT_EQ(Types(radv, Place::kHost, false), (List{3, 1}));
    EXPECT_EQ(Types(radv, Place::kDevice, false, 0b1110), (List{2}));
}

// A layout that virtual GPUs may report.
TEST(GpuMemory, AllMappedMemoryIsDeviceLocal) {
    const std::vector<VkMemoryPropertyFlags> types = {kL, kL | kHc, kL | kHc | kC};
    EXPECT_EQ(Types(types, Place::kHost, false), (List{2, 1}));
    EXPECT_EQ(Types(types, Place::kDevice, false), (List{0, 1, 2}));
    EXPECT_EQ(Types({kL}, Place::kHost, false), List{});
}

TEST(GpuMemory, ApuMapsDeviceBuffers) {
    const std::vector<VkMemoryPropertyFlags> radv = {kL, kHc, kL | kHc, kHc | kC};
    EXPECT_EQ(Types(radv, Place::kDevice, true), (List{2, 0, 1, 3}));
    EXPECT_EQ(Types(radv, Place::kHost, true), (List{3, 1, 2}));
    // Intel, and lavapipe: one heap.
    const std::vector<VkMemoryPropertyFlags> one = {kL | kHc, kL | kHc | kC};
    EXPECT_EQ(Types(one, Place::kDevice, true), (List{0, 1}));
    EXPECT_EQ(Types(one, Place::kHost, true), (List{1, 0}));
}

// RADV on an APU and on a card: memory that host and device share while a submission runs is not
// used for other buffers.
TEST(GpuMemory, MeetingBuffersAreUncachedOnAmd) {
    constexpr VkMemoryPropertyFlags kM =
        VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD;
    std::vector<VkMemoryPropertyFlags> radv = {kL, kHc, kL | kHc, kHc | kC};
    for (size_t i = 0; i < 4; ++i) radv.push_back(radv[i] | kM);
    EXPECT_EQ(Types(radv, Place::kMeeting, true), (List{7, 5, 6, 3, 1, 2}));
    EXPECT_EQ(Types(radv, Place::kMeeting, false), (List{7, 5, 3, 1}));
    EXPECT_EQ(Types(radv, Place::kDevice, true), (List{2, 0, 1, 3}));
    EXPECT_EQ(Types(radv, Place::kHost, true), (List{3, 1, 2}));
    // On other drivers it is host memory.
    const std::vector<VkMemoryPropertyFlags> one = {kL | kHc, kL | kHc | kC};
    EXPECT_EQ(Types(one, Place::kMeeting, true), (List{1, 0}));
    EXPECT_EQ(Types(one, Place::kMeeting, false), (List{1, 0}));
}

// Data that the host writes for running kernels goes through a card's host-visible window, if it
// has one.
TEST(GpuMemory, InboxIsInTheCardsWindow) {
    constexpr VkMemoryPropertyFlags kM =
        VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD;
    const std::vector<VkMemoryPropertyFlags> nvidia = {0, kL, kHc, kHc | kC, kL | kHc};
    EXPECT_EQ(Types(nvidia, Place::kInbox, false), (List{4, 2, 3}));
    EXPECT_EQ(Types(nvidia, Place::kMeeting, false), (List{3, 2}));
    EXPECT_EQ(Types({kL, kHc}, Place::kInbox, false), List{1});
    std::vector<VkMemoryPropertyFlags> radv = {kL, kHc, kL | kHc, kHc | kC};
    for (size_t i = 0; i < 4; ++i) radv.push_back(radv[i] | kM);
    EXPECT_EQ(Types(radv, Place::kInbox, false), (List{6, 5, 7, 2, 1, 3}));
    EXPECT_EQ(Types(radv, Place::kInbox, true), Types(radv, Place::kMeeting, true));
}

TEST(GpuMemory, TypesWithOtherPropertiesAreNotUsed) {
    const std::vector<VkMemoryPropertyFlags> odd = {
        kL | VK_MEMORY_PROPERTY_PROTECTED_BIT, kL | VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT,
        kHc | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | kC};
    EXPECT_EQ(Types(odd, Place::kDevice, false), List{});
    EXPECT_EQ(Types(odd, Place::kHost, true), List{});
}

}  // namespace
}  // namespace weft::gpu
