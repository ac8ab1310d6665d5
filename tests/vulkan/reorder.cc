// Takes the loader's place, as libvulkan.so.1 on LD_LIBRARY_PATH, and runs the commands between two
// barriers in another order: lavapipe, which runs all commands in turn, hides a missing barrier.
// WEFT_TEST_VULKAN names the real loader.
//
//     WEFT_TEST_ORDER=reverse      dispatches, fills and copies in reverse
//     WEFT_TEST_ORDER=N            shuffled, with this seed
//     WEFT_TEST_DROP=N             leaves out every N-th barrier; a test must then fail
//     WEFT_TEST_ORDER_REPORT=PATH  file to which the process appends a line with a 1 for each
//                                  group of several commands
#include <dlfcn.h>
#include <vulkan/vulkan_core.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

// A command buffer: what is bound, and the commands since its last barrier.
struct Recording {
    VkPipeline pipeline = VK_NULL_HANDLE;
    VkPipelineLayout layout_of_sets = VK_NULL_HANDLE, layout_of_constants = VK_NULL_HANDLE;
    std::vector<VkDescriptorSet> sets;
    std::vector<std::byte> constants;
    std::vector<std::function<void()>> commands;
};

struct State {
    PFN_vkGetInstanceProcAddr instance = nullptr;
    PFN_vkGetDeviceProcAddr device = nullptr;
    PFN_vkCmdBindPipeline bind = nullptr;
    PFN_vkCmdBindDescriptorSets bind_sets = nullptr;
    PFN_vkCmdPushConstants push = nullptr;
    PFN_vkCmdDispatchBase dispatch = nullptr;
    PFN_vkCmdCopyBuffer copy = nullptr;
    PFN_vkCmdFillBuffer fill = nullptr;
    PFN_vkCmdPipelineBarrier barrier = nullptr;
    PFN_vkCmdWriteTimestamp time = nullptr;
    PFN_vkEndCommandBuffer end = nullptr;
    std::string order =
        std::getenv("WEFT_TEST_ORDER") == nullptr ? "reverse" : std::getenv("WEFT_TEST_ORDER");
    int64_t drop =
        std::getenv("WEFT_TEST_DROP") == nullptr ? 0 : std::atoll(std::getenv("WEFT_TEST_DROP"));
    std::mutex mutex;  // guards the following members
    std::mt19937 random{static_cast<uint32_t>(std::atoi(order.c_str()))};
    std::map<VkCommandBuffer, Recording> recordings;
    std::atomic<int64_t> barriers{0};
    // (Written at once, because a process without barriers may crash.)
    std::ofstream report{std::getenv("WEFT_TEST_ORDER_REPORT") == nullptr
                             ? "/dev/null"
                             : std::getenv("WEFT_TEST_ORDER_REPORT"),
                         std::ios::app};
};
// (A global, because Vulkan calls are plain functions.)
State& The() {
    static State state;
    return state;
}

// (One thread records a command buffer, and the map keeps its elements in place.)
Recording& Of(VkCommandBuffer buffer) {
    const std::lock_guard lock(The().mutex);
    return The().recordings[buffer];
}

void Flush(Recording& recording) {
    auto& commands = recording.commands;
    if (commands.size() > 1) {
        const std::lock_guard lock(The().mutex);
        The().report << "1" << std::endl;
        if (The().order == "reverse") {
            std::ranges::reverse(commands);
        } else {
            std::ranges::shuffle(commands, The().random);
        }
    }
    for (const auto& run : commands) run();
    commands.clear();
}

// ---- State of dispatches ------------------------------------------------------------------------

VKAPI_ATTR void VKAPI_CALL Bind(VkCommandBuffer buffer, VkPipelineBindPoint, VkPipeline pipeline) {
    Of(buffer).pipeline = pipeline;
}

VKAPI_ATTR void VKAPI_CALL BindSets(VkCommandBuffer buffer, VkPipelineBindPoint,
                                    VkPipelineLayout layout, uint32_t first, uint32_t count,
                                    const VkDescriptorSet* sets, uint32_t offsets,
                                    const uint32_t*) {
    if (first != 0 || offsets != 0) std::abort();
    Recording& recording = Of(buffer);
    recording.layout_of_sets = layout;
    recording.sets.assign(sets, sets + count);
}

VKAPI_ATTR void VKAPI_CALL Push(VkCommandBuffer buffer, VkPipelineLayout layout, VkShaderStageFlags,
                                uint32_t offset, uint32_t bytes, const void* constants) {
    if (offset != 0) std::abort();
    Recording& recording = Of(buffer);
    const auto* const from = static_cast<const std::byte*>(constants);
    recording.layout_of_constants = layout;
    recording.constants.assign(from, from + bytes);
}

// ---- Commands -----------------------------------------------------------------------------------

VKAPI_ATTR void VKAPI_CALL Dispatch(VkCommandBuffer buffer, uint32_t base_x, uint32_t base_y,
                                    uint32_t base_z, uint32_t x, uint32_t y, uint32_t z) {
    Recording& recording = Of(buffer);
    Recording own = recording;
    own.commands.clear();
    recording.commands.emplace_back([=] {
        const State& the = The();
        constexpr VkPipelineBindPoint kPoint = VK_PIPELINE_BIND_POINT_COMPUTE;
        the.bind(buffer, kPoint, own.pipeline);
        if (!own.sets.empty()) {
            the.bind_sets(buffer, kPoint, own.layout_of_sets, 0,
                          static_cast<uint32_t>(own.sets.size()), own.sets.data(), 0, nullptr);
        }
        if (!own.constants.empty()) {
            the.push(buffer, own.layout_of_constants, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                     static_cast<uint32_t>(own.constants.size()), own.constants.data());
        }
        the.dispatch(buffer, base_x, base_y, base_z, x, y, z);
    });
}

VKAPI_ATTR void VKAPI_CALL Copy(VkCommandBuffer buffer, VkBuffer from, VkBuffer to, uint32_t count,
                                const VkBufferCopy* regions) {
    Of(buffer).commands.emplace_back([=, own = std::vector(regions, regions + count)] {
        The().copy(buffer, from, to, static_cast<uint32_t>(own.size()), own.data());
    });
}

VKAPI_ATTR void VKAPI_CALL Fill(VkCommandBuffer buffer, VkBuffer to, VkDeviceSize offset,
                                VkDeviceSize bytes, uint32_t word) {
    Of(buffer).commands.emplace_back([=] { The().fill(buffer, to, offset, bytes, word); });
}

VKAPI_ATTR void VKAPI_CALL Barrier(VkCommandBuffer buffer, VkPipelineStageFlags from,
                                   VkPipelineStageFlags to, VkDependencyFlags flags, uint32_t count,
                                   const VkMemoryBarrier* barriers, uint32_t buffer_count,
                                   const VkBufferMemoryBarrier* buffers, uint32_t image_count,
                                   const VkImageMemoryBarrier* images) {
    State& the = The();
    if (the.drop > 0 && ++the.barriers % the.drop == 0) return;
    Flush(Of(buffer));
    the.barrier(buffer, from, to, flags, count, barriers, buffer_count, buffers, image_count,
                images);
}

VKAPI_ATTR void VKAPI_CALL Time(VkCommandBuffer buffer, VkPipelineStageFlagBits stage,
                                VkQueryPool pool, uint32_t query) {
    Flush(Of(buffer));
    The().time(buffer, stage, pool, query);
}

VKAPI_ATTR VkResult VKAPI_CALL End(VkCommandBuffer buffer) {
    Flush(Of(buffer));
    {
        const std::lock_guard lock(The().mutex);
        The().recordings.erase(buffer);
    }
    return The().end(buffer);
}

template <typename Function>
PFN_vkVoidFunction Instead(Function& place, PFN_vkVoidFunction found, Function mine) {
    place = reinterpret_cast<Function>(found);
    return found == nullptr ? nullptr : reinterpret_cast<PFN_vkVoidFunction>(mine);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL OfDevice(VkDevice device, const char* name) {
    State& the = The();
    const PFN_vkVoidFunction found = the.device(device, name);
    const std::string_view call = name;
    if (call == "vkCmdBindPipeline") return Instead(the.bind, found, Bind);
    if (call == "vkCmdBindDescriptorSets") return Instead(the.bind_sets, found, BindSets);
    if (call == "vkCmdPushConstants") return Instead(the.push, found, Push);
    if (call == "vkCmdDispatchBase") return Instead(the.dispatch, found, Dispatch);
    if (call == "vkCmdCopyBuffer") return Instead(the.copy, found, Copy);
    if (call == "vkCmdFillBuffer") return Instead(the.fill, found, Fill);
    if (call == "vkCmdPipelineBarrier") return Instead(the.barrier, found, Barrier);
    if (call == "vkCmdWriteTimestamp") return Instead(the.time, found, Time);
    if (call == "vkEndCommandBuffer") return Instead(the.end, found, End);
    return found;
}

}  // namespace

extern "C" VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance,
                                                                          const char* name) {
    State& the = The();
    if (the.instance == nullptr) {
        const char* path = std::getenv("WEFT_TEST_VULKAN");
        void* library = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return nullptr;
        the.instance =
            reinterpret_cast<PFN_vkGetInstanceProcAddr>(::dlsym(library, "vkGetInstanceProcAddr"));
    }
    const PFN_vkVoidFunction found = the.instance(instance, name);
    const std::string_view call = name;
    if (call == "vkGetDeviceProcAddr") return Instead(the.device, found, OfDevice);
    return found;
}
