// Device memory: the choice of a buffer's memory type, and its lifetime.
#include "gpu/vulkan/memory.h"

#include <algorithm>
#include <utility>

namespace weft::gpu {
namespace {

constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags kVisible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
constexpr VkMemoryPropertyFlags kCoherent = VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
constexpr VkMemoryPropertyFlags kMapped = kVisible | kCoherent;
// Types with other properties (protected, lazily allocated) are not used.
constexpr VkMemoryPropertyFlags kKnown = kLocal | kVisible | kCoherent | kCached;
constexpr VkMemoryPropertyFlags kMeets =
    VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD;

// Rating of a memory type for a use; 0: unsuitable.
int RatingForDevice(VkMemoryPropertyFlags flags, bool unified) {
    const bool mapped = (flags & kMapped) == kMapped;
    if ((flags & kLocal) != 0) return mapped == unified ? 3 : 2;
    return unified && mapped ? 1 : 0;  // the same memory through another heap
}
int RatingForHost(VkMemoryPropertyFlags flags, bool unified) {
    if ((flags & kMapped) != kMapped) return 0;
    if (!unified && (flags & kLocal) != 0)
        return 0;  // on a card: slow to read over PCIe, and
                   // scarce
    return (flags & kCached) != 0 ? 2 : 1;
}
int RatingForMeeting(VkMemoryPropertyFlags flags, bool unified) {
    const int rating = RatingForHost(flags, unified);
    return rating > 0 && (flags & kMeets) != 0 ? rating + 2 : rating;
}
int RatingForInbox(VkMemoryPropertyFlags flags, bool unified) {
    if (unified) return RatingForMeeting(flags, unified);
    if ((flags & kMapped) != kMapped) return 0;
    return ((flags & kLocal) != 0 ? 2 : 1) + ((flags & kMeets) != 0 ? 2 : 0);
}
int RatingFor(Place place, VkMemoryPropertyFlags flags, bool unified) {
    switch (place) {
        case Place::kDevice: return RatingForDevice(flags, unified);
        case Place::kHost: return RatingForHost(flags, unified);
        case Place::kMeeting: return RatingForMeeting(flags, unified);
        case Place::kInbox: return RatingForInbox(flags, unified);
    }
    return 0;
}

std::string HeapsText(const std::vector<Heap>& heaps) {
    std::string text;
    for (const Heap& heap : heaps) {
        text +=
            fmt::format("{}{} MiB free of {}{}", text.empty() ? "" : ", ", heap.free_bytes >> 20,
                        heap.total_bytes >> 20, heap.device_local ? " on the device" : "");
    }
    return text;
}

Error NoMemory(Core& core, uint64_t bytes, Place place) {
    return MakeError(ErrorCode::kOutOfMemory, "{}: no {} memory for {} bytes ({} MiB); heaps: {}",
                     core.Who(), place == Place::kDevice ? "device" : "host", bytes, bytes >> 20,
                     HeapsText(ReadHeaps(core.calls, core.physical)));
}

bool IsOutOfMemory(VkResult result) {
    return result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY;
}

Status CreateBuffer(Core& core, uint64_t bytes, VkBuffer& buffer) {
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = bytes;
    info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    info.sharingMode = VK_SHARING_MODE_EXCLUSIVE;
    const VkResult result = core.calls.CreateBuffer(core.device, &info, nullptr, &buffer);
    if (result == VK_SUCCESS) return {};
    buffer = VK_NULL_HANDLE;
    return core.Fail("vkCreateBuffer", result);
}

// The suitable types, best first; types whose heap lacks free memory come last: the driver may
// grant the allocation anyway, and lose the device on access.
std::vector<uint32_t> TypesWithSpace(const Core& core, const VkMemoryRequirements& needs,
                                     Place place) {
    const VkPhysicalDeviceMemoryProperties& memory = core.physical.memory;
    const std::vector<Heap> heaps = ReadHeaps(core.calls, core.physical);
    uint32_t allowed = needs.memoryTypeBits;
    for (uint32_t i = 0; i < memory.memoryTypeCount && !core.physical.device_coherent; ++i) {
        // Without the feature, such memory must not be allocated.
        if ((memory.memoryTypes[i].propertyFlags & kMeets) != 0) allowed &= ~(1u << i);
    }
    std::vector<uint32_t> types =
        MemoryTypesFor(memory, allowed, place, core.physical.description.unified);
    std::stable_partition(types.begin(), types.end(), [&](uint32_t type) {
        return heaps[memory.memoryTypes[type].heapIndex].free_bytes >= needs.size;
    });
    return types;
}

// Allocates from the best type with free memory; returns its properties.
Result<VkMemoryPropertyFlags> BindMemory(Core& core, Place place, Memory& held) {
    VkMemoryRequirements needs{};
    core.calls.GetBufferMemoryRequirements(core.device, held.buffer, &needs);
    VkMemoryAllocateFlagsInfo addressed{};
    addressed.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
    addressed.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    VkMemoryAllocateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
    info.pNext = &addressed;
    info.allocationSize = needs.size;
    VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    const VkPhysicalDeviceMemoryProperties& memory = core.physical.memory;
    for (const uint32_t type : TypesWithSpace(core, needs, place)) {
        // A driver may grant more than a heap has, and end the process on access.
        if (needs.size > memory.memoryHeaps[memory.memoryTypes[type].heapIndex].size) continue;
        info.memoryTypeIndex = type;
        result = core.calls.AllocateMemory(core.device, &info, nullptr, &held.memory);
        if (result != VK_SUCCESS) held.memory = VK_NULL_HANDLE;
        if (!IsOutOfMemory(result)) break;
    }
    if (IsOutOfMemory(result)) return NoMemory(core, needs.size, place);
    if (result != VK_SUCCESS) return core.Fail("vkAllocateMemory", result);
    WEFT_TRY(core.Check("vkBindBufferMemory",
                        core.calls.BindBufferMemory(core.device, held.buffer, held.memory, 0)));
    return memory.memoryTypes[info.memoryTypeIndex].propertyFlags;
}

}  // namespace

std::vector<uint32_t> MemoryTypesFor(const VkPhysicalDeviceMemoryProperties& memory,
                                     uint32_t allowed, Place place, bool unified) {
    const bool meets = place == Place::kMeeting || place == Place::kInbox;
    const VkMemoryPropertyFlags known = meets ? kKnown | kMeets : kKnown;
    std::vector<std::pair<int, uint32_t>> found;
    const auto find = [&](const auto& rating_of) {
        for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
            const VkMemoryPropertyFlags flags = memory.memoryTypes[i].propertyFlags;
            if ((allowed >> i & 1) == 0 || (flags & ~known) != 0) continue;
            if (const int rating = rating_of(flags); rating > 0) found.emplace_back(-rating, i);
        }
    };
    find([&](VkMemoryPropertyFlags flags) { return RatingFor(place, flags, unified); });
    // Vulkan guarantees only one mapped type, which may be device memory.
    if (found.empty() && place != Place::kDevice) {
        find([](VkMemoryPropertyFlags flags) { return RatingForHost(flags, true); });
    }
    std::stable_sort(found.begin(), found.end());
    std::vector<uint32_t> types;
    for (const auto& row : found) types.push_back(row.second);
    return types;
}

Memory::~Memory() {
    if (buffer == VK_NULL_HANDLE && memory == VK_NULL_HANDLE) return;
    if (!core->Settled()) return;
    if (buffer != VK_NULL_HANDLE) core->calls.DestroyBuffer(core->device, buffer, nullptr);
    if (memory != VK_NULL_HANDLE) core->calls.FreeMemory(core->device, memory, nullptr);
}

Result<Buffer> AllocateOn(std::shared_ptr<Core> shared, uint64_t bytes, Place place) {
    Core& core = *shared;
    const uint64_t size = std::max<uint64_t>((bytes + 3) / 4 * 4, 4);
    if (bytes > core.physical.most_buffer_bytes) return NoMemory(core, bytes, place);
    auto held = std::make_unique<Memory>(std::move(shared));
    WEFT_TRY(CreateBuffer(core, size, held->buffer));
    WEFT_ASSIGN(const VkMemoryPropertyFlags flags, BindMemory(core, place, *held));
    const bool mapped = place != Place::kDevice ||
                        (core.physical.description.unified && (flags & kMapped) == kMapped);
    void* host = nullptr;
    if (mapped) {
        WEFT_TRY(core.Check("vkMapMemory", core.calls.MapMemory(core.device, held->memory, 0,
                                                                VK_WHOLE_SIZE, 0, &host)));
    }
    VkBufferDeviceAddressInfo where{};
    where.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
    where.buffer = held->buffer;
    const uint64_t address = core.calls.GetBufferDeviceAddress(core.device, &where);
    return Buffer(std::move(held), address, bytes, static_cast<std::byte*>(host));
}

}  // namespace weft::gpu
