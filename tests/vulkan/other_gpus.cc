// Takes the loader's place, as libvulkan.so.1 on LD_LIBRARY_PATH, and presents the first device
// that the real loader lists (lavapipe) as other GPUs: their properties are simulated, their
// results are right. WEFT_TEST_VULKAN names the real loader, WEFT_TEST_GPUS the GPUs, separated by
// ';':
//
//     "discrete vram=512 window=64 without=shaderFloat16; integrated vram=64 host=32; cpu"
//
//     discrete, integrated, virtual, cpu   the kind; cpu is lavapipe unchanged. virtual: all memory
//                                 is device-local, and some of it is mappable
//     name=X vendor=HEX           as the driver reports them
//     vram=MIB                    device-local memory: on a card, the host can't map it
//     window=MIB                  a separate part of it that the host can map
//     host=MIB                    host memory
//     used=MIB                    vram used by other programs
//     budget=0                    no VK_EXT_memory_budget
//     buffer=MIB                  largest allocation
//     without=FEATURE             shaderFloat16, shaderInt8, storageBuffer8BitAccess,
//                                 storageBuffer16BitAccess, timelineSemaphore
//     shared=BYTES invocations=N  limits of a workgroup
//     dot=fast, dot=none          products of packed int8
//     timestamps=BITS             0: none
//     subgroups=fixed             no VK_EXT_subgroup_size_control
//     pci=BUS                     the number of its PCI bus
//     refuses=1                   vkCreateDevice fails
//     promises=1                  allocations beyond a heap succeed, and the device is lost when
//                                 they are used
//     fails=N with=CODE           the N-th call (from 0) of a device that can fail does, with the
//                                 VkResult CODE (-4: the device is lost)
//
// If WEFT_TEST_CALLS names a folder, each process writes the number of such calls of each GPU into
// it, as GPU.PID.
// Memory is filled with bytes 0xff, so that a reader of memory that was not written reads NaN.
#include <dlfcn.h>
#include <unistd.h>
#include <vulkan/vulkan_core.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags kMapped =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;

struct Gpu {
    std::map<std::string, std::string> words;
    VkPhysicalDeviceType type = VK_PHYSICAL_DEVICE_TYPE_CPU;
    VkPhysicalDeviceMemoryProperties memory{};
    uint64_t held[VK_MAX_MEMORY_HEAPS] = {};  // by this process

    bool Plays() const { return type != VK_PHYSICAL_DEVICE_TYPE_CPU; }
    uint64_t Number(const char* word, uint64_t otherwise, int base = 10) const {
        const auto found = words.find(word);
        return found == words.end() ? otherwise
                                    : std::strtoull(found->second.c_str(), nullptr, base);
    }
    bool Is(const char* word, const char* value) const {
        const auto found = words.find(word);
        return found != words.end() && found->second == value;
    }
    void AddHeap(uint64_t bytes, VkMemoryHeapFlags flags,
                 std::initializer_list<VkMemoryPropertyFlags> types) {
        const uint32_t heap = memory.memoryHeapCount++;
        memory.memoryHeaps[heap] = {bytes, flags};
        for (const VkMemoryPropertyFlags type_flags : types) {
            memory.memoryTypes[memory.memoryTypeCount++] = {type_flags, heap};
        }
    }
};

// A memory allocation.
struct Held {
    Gpu* gpu = nullptr;
    uint32_t heap = 0;
    uint64_t bytes = 0;
    bool mapped = false;
};

// (Old headers lack VkCooperativeMatrixPropertiesKHR.)
using PFN_Matrices = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*, void*);

struct State {
    PFN_vkGetInstanceProcAddr instance = nullptr;
    PFN_vkEnumeratePhysicalDevices list = nullptr;
    PFN_vkGetPhysicalDeviceProperties2 properties = nullptr;
    PFN_vkGetPhysicalDeviceFeatures2 features = nullptr;
    PFN_vkGetPhysicalDeviceMemoryProperties2 memory = nullptr;
    PFN_vkGetPhysicalDeviceQueueFamilyProperties queues = nullptr;
    PFN_vkEnumerateDeviceExtensionProperties extensions = nullptr;
    PFN_Matrices matrices = nullptr;
    PFN_vkCreateDevice create = nullptr;
    PFN_vkGetDeviceProcAddr device = nullptr;
    PFN_vkAllocateMemory allocate = nullptr;
    PFN_vkFreeMemory free = nullptr;
    PFN_vkMapMemory map = nullptr;
    PFN_vkUnmapMemory unmap = nullptr;
    PFN_vkGetBufferMemoryRequirements needs = nullptr;
    VkPhysicalDevice real = VK_NULL_HANDLE;
    std::vector<Gpu> gpus;
    std::mutex mutex;  // guards the following members, and Gpu::held
    std::map<VkDevice, Gpu*> devices;
    std::map<VkDeviceMemory, Held> held;
    std::atomic<int64_t> calls{0};  // of the devices of this process, which has one

    ~State() {
        const char* folder = std::getenv("WEFT_TEST_CALLS");
        if (folder == nullptr || devices.empty()) return;
        const int64_t gpu = devices.begin()->second - gpus.data();
        std::ofstream(std::string(folder) + "/" + std::to_string(gpu) + "." +
                      std::to_string(::getpid()))
            << calls;
    }
};
// (A global, because Vulkan calls are plain functions.)
State& The() {
    static State state;
    return state;
}

Gpu* GpuOf(VkPhysicalDevice handle) {
    return reinterpret_cast<Gpu*>(handle);
}

Gpu MakeGpu(const std::string& text) {
    Gpu gpu;
    std::istringstream stream(text);
    for (std::string word; stream >> word;) {
        const size_t at = word.find('=');
        gpu.words[word.substr(0, at)] = at == std::string::npos ? "" : word.substr(at + 1);
    }
    const uint64_t vram = gpu.Number("vram", 512) * kMiB, host = gpu.Number("host", 1024) * kMiB;
    if (gpu.words.contains("discrete")) {
        gpu.type = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
        gpu.AddHeap(vram, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT, {kLocal});
        gpu.AddHeap(host, 0, {kMapped, kMapped | kCached});
        if (const uint64_t window = gpu.Number("window", 0) * kMiB; window > 0) {
            gpu.AddHeap(window, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT, {kLocal | kMapped});
        }
    } else if (gpu.words.contains("integrated")) {
        gpu.type = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
        gpu.AddHeap(vram, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT, {kLocal, kLocal | kMapped});
        gpu.AddHeap(host, 0, {kMapped, kMapped | kCached});
    } else if (gpu.words.contains("virtual")) {
        gpu.type = VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU;
        gpu.AddHeap(vram, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT, {kLocal, kLocal | kMapped});
    }
    return gpu;
}

void MakeGpus() {
    const char* text = std::getenv("WEFT_TEST_GPUS");
    std::istringstream stream(text == nullptr ? "" : text);
    for (std::string one; std::getline(stream, one, ';');) The().gpus.push_back(MakeGpu(one));
}

// The structure of this type in a pNext chain; or null.
template <typename T>
T* Part(void* chain, VkStructureType type) {
    for (auto* at = static_cast<VkBaseOutStructure*>(chain); at != nullptr; at = at->pNext) {
        if (at->sType == type) return reinterpret_cast<T*>(at);
    }
    return nullptr;
}

// ---- Physical devices ---------------------------------------------------------------------------

VKAPI_ATTR VkResult VKAPI_CALL List(VkInstance instance, uint32_t* count, VkPhysicalDevice* out) {
    State& the = The();
    uint32_t one = 1;
    const VkResult result = the.list(instance, &one, &the.real);
    if ((result != VK_SUCCESS && result != VK_INCOMPLETE) || one == 0) return result;
    if (the.gpus.empty()) MakeGpus();
    const auto all = static_cast<uint32_t>(the.gpus.size());
    if (out == nullptr) {
        *count = all;
        return VK_SUCCESS;
    }
    *count = std::min(*count, all);
    for (uint32_t i = 0; i < *count; ++i) {
        out[i] = reinterpret_cast<VkPhysicalDevice>(&the.gpus[i]);
    }
    return *count < all ? VK_INCOMPLETE : VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL Properties(VkPhysicalDevice device, VkPhysicalDeviceProperties2* out) {
    The().properties(The().real, out);
    const Gpu& gpu = *GpuOf(device);
    if (!gpu.Plays()) return;
    VkPhysicalDeviceProperties& base = out->properties;
    base.deviceType = gpu.type;
    base.vendorID = static_cast<uint32_t>(gpu.Number("vendor", 0x10de, 16));
    const bool card = gpu.type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
    const auto named = gpu.words.find("name");
    const std::string name = named != gpu.words.end() ? named->second : card ? "Card" : "Apu";
    std::strncpy(base.deviceName, name.c_str(), sizeof base.deviceName - 1);
    VkPhysicalDeviceLimits& limits = base.limits;
    const auto set = [&](const char* word, uint32_t& limit) {
        limit = static_cast<uint32_t>(gpu.Number(word, limit));
    };
    set("shared", limits.maxComputeSharedMemorySize);
    set("invocations", limits.maxComputeWorkGroupInvocations);
    // Reported as another driver, so that Mesa's version is not checked.
    if (auto* driver = Part<VkPhysicalDeviceDriverProperties>(
            out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES)) {
        driver->driverID = VK_DRIVER_ID_NVIDIA_PROPRIETARY;
    }
    const uint64_t most = gpu.Number("buffer", 0) * kMiB;
    if (auto* memory = Part<VkPhysicalDeviceMaintenance3Properties>(
            out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES)) {
        if (most > 0) memory->maxMemoryAllocationSize = most;
    }
    if (auto* pci = Part<VkPhysicalDevicePCIBusInfoPropertiesEXT>(
            out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT)) {
        pci->pciDomain = pci->pciDevice = pci->pciFunction = 0;
        pci->pciBus = static_cast<uint32_t>(gpu.Number("pci", 0));
    }
    if (auto* dot = Part<VkPhysicalDeviceShaderIntegerDotProductProperties>(
            out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES)) {
        if (gpu.Is("dot", "fast")) dot->integerDotProduct4x8BitPackedSignedAccelerated = VK_TRUE;
    }
}

VKAPI_ATTR void VKAPI_CALL Features(VkPhysicalDevice device, VkPhysicalDeviceFeatures2* out) {
    The().features(The().real, out);
    const Gpu& gpu = *GpuOf(device);
    auto* v11 = Part<VkPhysicalDeviceVulkan11Features>(
        out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
    auto* v12 = Part<VkPhysicalDeviceVulkan12Features>(
        out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
    if (v11 == nullptr || v12 == nullptr) return;
    const auto take = [&](const char* name, VkBool32& feature) {
        if (gpu.Is("without", name)) feature = VK_FALSE;
    };
    take("shaderFloat16", v12->shaderFloat16);
    take("shaderInt8", v12->shaderInt8);
    take("storageBuffer8BitAccess", v12->storageBuffer8BitAccess);
    take("storageBuffer16BitAccess", v11->storageBuffer16BitAccess);
    take("timelineSemaphore", v12->timelineSemaphore);
}

VKAPI_ATTR void VKAPI_CALL Memory(VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties2* out) {
    const Gpu& gpu = *GpuOf(device);
    if (!gpu.Plays()) return The().memory(The().real, out);
    out->memoryProperties = gpu.memory;
    auto* budget = Part<VkPhysicalDeviceMemoryBudgetPropertiesEXT>(
        out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT);
    if (budget == nullptr) return;
    const std::lock_guard lock(The().mutex);
    for (uint32_t heap = 0; heap < gpu.memory.memoryHeapCount; ++heap) {
        const uint64_t others = heap == 0 ? gpu.Number("used", 0) * kMiB : 0;
        budget->heapBudget[heap] = gpu.memory.memoryHeaps[heap].size - others;
        budget->heapUsage[heap] = gpu.held[heap];
    }
}

VKAPI_ATTR void VKAPI_CALL Queues(VkPhysicalDevice device, uint32_t* count,
                                  VkQueueFamilyProperties* out) {
    The().queues(The().real, count, out);
    const Gpu& gpu = *GpuOf(device);
    for (uint32_t i = 0; out != nullptr && i < *count; ++i) {
        out[i].timestampValidBits =
            static_cast<uint32_t>(gpu.Number("timestamps", out[i].timestampValidBits));
    }
}

VKAPI_ATTR VkResult VKAPI_CALL Extensions(VkPhysicalDevice device, const char* layer,
                                          uint32_t* count, VkExtensionProperties* out) {
    uint32_t real = 0;
    VkResult result = The().extensions(The().real, layer, &real, nullptr);
    std::vector<VkExtensionProperties> all(real);
    if (result == VK_SUCCESS) result = The().extensions(The().real, layer, &real, all.data());
    if (result != VK_SUCCESS) return result;
    const Gpu& gpu = *GpuOf(device);
    const auto drop = [&](std::string_view name) {
        std::erase_if(all, [&](const auto& one) { return name == one.extensionName; });
    };
    if (gpu.Is("dot", "none")) drop(VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
    if (gpu.Is("subgroups", "fixed")) drop(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    if (gpu.words.contains("buffer")) drop(VK_KHR_MAINTENANCE_4_EXTENSION_NAME);
    if (gpu.words.contains("pci")) all.push_back({VK_EXT_PCI_BUS_INFO_EXTENSION_NAME, 2});
    if (gpu.Plays()) {
        drop(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
        if (!gpu.Is("budget", "0")) all.push_back({VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, 1});
    }
    if (out != nullptr) std::copy_n(all.begin(), std::min<size_t>(*count, all.size()), out);
    *count = static_cast<uint32_t>(all.size());
    return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL Matrices(VkPhysicalDevice, uint32_t* count, void* out) {
    return The().matrices(The().real, count, out);
}

// ---- Calls that fail ----------------------------------------------------------------------------

// Whether more of a heap is allocated than it has.
bool IsOver(const Gpu& gpu) {
    const std::lock_guard lock(The().mutex);
    for (uint32_t heap = 0; heap < gpu.memory.memoryHeapCount; ++heap) {
        if (gpu.held[heap] > gpu.memory.memoryHeaps[heap].size) return true;
    }
    return false;
}

// Whether this call must fail.
bool Fails(Gpu* gpu, VkResult* with) {
    const int64_t number = The().calls++;
    if (gpu == nullptr || number != static_cast<int64_t>(gpu->Number("fails", ~uint64_t{0}))) {
        return false;
    }
    const auto code = gpu->words.find("with");
    *with = static_cast<VkResult>(code == gpu->words.end() ? -13 : std::atoi(code->second.c_str()));
    return true;
}

Gpu* OnlyGpu() {
    const std::lock_guard lock(The().mutex);
    return The().devices.empty() ? nullptr : The().devices.begin()->second;
}

template <typename Tag, typename Function>
struct Failing;
template <typename Tag, typename... Types>
struct Failing<Tag, VkResult(VKAPI_PTR*)(Types...)> {
    static inline VkResult(VKAPI_PTR* real)(Types...) = nullptr;
    static VKAPI_ATTR VkResult VKAPI_CALL Call(Types... args) {
        VkResult with = VK_SUCCESS;
        Gpu* const gpu = OnlyGpu();
        if (Fails(gpu, &with)) return with;
        if (gpu != nullptr && gpu->Plays() && IsOver(*gpu)) return VK_ERROR_DEVICE_LOST;
        return real(args...);
    }
};

// (Waiting calls are excluded: how often they are made varies, so numbers would differ between
// runs.)
#define WEFT_TEST_FAILING(X)  \
    X(QueueSubmit)            \
    X(CreateSemaphore)        \
    X(CreateBuffer)           \
    X(BindBufferMemory)       \
    X(CreateShaderModule)     \
    X(CreatePipelineLayout)   \
    X(CreatePipelineCache)    \
    X(CreateComputePipelines) \
    X(CreateCommandPool)      \
    X(AllocateCommandBuffers) \
    X(BeginCommandBuffer)     \
    X(EndCommandBuffer)       \
    X(CreateQueryPool)
#define WEFT_TEST_TAG(name) \
    struct Tag##name {};
WEFT_TEST_FAILING(WEFT_TEST_TAG)

PFN_vkVoidFunction FailingOne(std::string_view call, PFN_vkVoidFunction found) {
    if (found == nullptr) return found;
#define WEFT_TEST_WRAP(name)                                        \
    if (call == "vk" #name) {                                       \
        using Wrapped = Failing<Tag##name, PFN_vk##name>;           \
        Wrapped::real = reinterpret_cast<PFN_vk##name>(found);      \
        return reinterpret_cast<PFN_vkVoidFunction>(Wrapped::Call); \
    }
    WEFT_TEST_FAILING(WEFT_TEST_WRAP)
    return found;
}

// ---- Devices ------------------------------------------------------------------------------------

VKAPI_ATTR VkResult VKAPI_CALL Create(VkPhysicalDevice device, const VkDeviceCreateInfo* info,
                                      const VkAllocationCallbacks* callbacks, VkDevice* out) {
    Gpu* const gpu = GpuOf(device);
    if (gpu->words.contains("refuses")) return VK_ERROR_INITIALIZATION_FAILED;
    std::vector<const char*> names(info->ppEnabledExtensionNames,
                                   info->ppEnabledExtensionNames + info->enabledExtensionCount);
    if (gpu->Plays()) {
        std::erase_if(names, [](std::string_view name) {
            return name == VK_EXT_MEMORY_BUDGET_EXTENSION_NAME ||
                   name == VK_EXT_PCI_BUS_INFO_EXTENSION_NAME;
        });
    }
    VkDeviceCreateInfo own = *info;
    own.enabledExtensionCount = static_cast<uint32_t>(names.size());
    own.ppEnabledExtensionNames = names.data();
    const VkResult result = The().create(The().real, &own, callbacks, out);
    const std::lock_guard lock(The().mutex);
    if (result == VK_SUCCESS) The().devices[*out] = gpu;
    return result;
}

Gpu* GpuOfDevice(VkDevice device) {
    const std::lock_guard lock(The().mutex);
    return The().devices.at(device);
}

VKAPI_ATTR void VKAPI_CALL Needs(VkDevice device, VkBuffer buffer, VkMemoryRequirements* out) {
    The().needs(device, buffer, out);
    const Gpu* gpu = GpuOfDevice(device);
    if (gpu->Plays()) out->memoryTypeBits = (1u << gpu->memory.memoryTypeCount) - 1;
}

VKAPI_ATTR VkResult VKAPI_CALL Allocate(VkDevice device, const VkMemoryAllocateInfo* info,
                                        const VkAllocationCallbacks* callbacks,
                                        VkDeviceMemory* out) {
    State& the = The();
    Gpu* const gpu = GpuOfDevice(device);
    if (VkResult with = VK_SUCCESS; Fails(gpu, &with)) return with;
    if (!gpu->Plays()) return the.allocate(device, info, callbacks, out);
    const VkMemoryType& type = gpu->memory.memoryTypes[info->memoryTypeIndex];
    const uint64_t most = gpu->Number("buffer", 1 << 20) * kMiB;
    {
        const std::lock_guard lock(the.mutex);
        const uint64_t others = type.heapIndex == 0 ? gpu->Number("used", 0) * kMiB : 0;
        const uint64_t room = gpu->memory.memoryHeaps[type.heapIndex].size - others;
        if (info->allocationSize > most) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
        const bool promises = gpu->words.contains("promises");
        if (gpu->held[type.heapIndex] + info->allocationSize > room && !promises)
            return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    VkMemoryAllocateInfo own = *info;
    own.memoryTypeIndex = 0;  // lavapipe has one
    const VkResult result = the.allocate(device, &own, callbacks, out);
    if (result != VK_SUCCESS) return result;
    void* bytes = nullptr;
    if (the.map(device, *out, 0, VK_WHOLE_SIZE, 0, &bytes) == VK_SUCCESS) {
        std::memset(bytes, 0xff, info->allocationSize);
        the.unmap(device, *out);
    }
    const std::lock_guard lock(the.mutex);
    gpu->held[type.heapIndex] += info->allocationSize;
    const bool mapped = (type.propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0;
    the.held[*out] = {gpu, type.heapIndex, info->allocationSize, mapped};
    return VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL Free(VkDevice device, VkDeviceMemory memory,
                                const VkAllocationCallbacks* callbacks) {
    {
        const std::lock_guard lock(The().mutex);
        if (const auto found = The().held.find(memory); found != The().held.end()) {
            found->second.gpu->held[found->second.heap] -= found->second.bytes;
            The().held.erase(found);
        }
    }
    The().free(device, memory, callbacks);
}

VKAPI_ATTR VkResult VKAPI_CALL Map(VkDevice device, VkDeviceMemory memory, VkDeviceSize at,
                                   VkDeviceSize bytes, VkMemoryMapFlags flags, void** out) {
    if (VkResult with = VK_SUCCESS; Fails(GpuOfDevice(device), &with)) return with;
    {
        const std::lock_guard lock(The().mutex);
        const auto found = The().held.find(memory);
        if (found != The().held.end() && !found->second.mapped) return VK_ERROR_MEMORY_MAP_FAILED;
    }
    return The().map(device, memory, at, bytes, flags, out);
}

// ---- Which function replaces which call ---------------------------------------------------------

template <typename Function>
PFN_vkVoidFunction Instead(Function& place, PFN_vkVoidFunction found, Function mine) {
    place = reinterpret_cast<Function>(found);
    return found == nullptr ? nullptr : reinterpret_cast<PFN_vkVoidFunction>(mine);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL OfDevice(VkDevice device, const char* name) {
    State& the = The();
    const PFN_vkVoidFunction found = the.device(device, name);
    const std::string_view call = name;
    the.unmap = reinterpret_cast<PFN_vkUnmapMemory>(the.device(device, "vkUnmapMemory"));
    if (call == "vkAllocateMemory") return Instead(the.allocate, found, Allocate);
    if (call == "vkFreeMemory") return Instead(the.free, found, Free);
    if (call == "vkMapMemory") return Instead(the.map, found, Map);
    if (call == "vkGetBufferMemoryRequirements") return Instead(the.needs, found, Needs);
    return FailingOne(call, found);
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
    if (call == "vkEnumeratePhysicalDevices") return Instead(the.list, found, List);
    if (call == "vkGetPhysicalDeviceProperties2") return Instead(the.properties, found, Properties);
    if (call == "vkGetPhysicalDeviceFeatures2") return Instead(the.features, found, Features);
    if (call == "vkGetPhysicalDeviceMemoryProperties2") return Instead(the.memory, found, Memory);
    if (call == "vkGetPhysicalDeviceQueueFamilyProperties") {
        return Instead(the.queues, found, Queues);
    }
    if (call == "vkEnumerateDeviceExtensionProperties") {
        return Instead(the.extensions, found, Extensions);
    }
    if (call == "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR") {
        return Instead(the.matrices, found, Matrices);
    }
    if (call == "vkCreateDevice") return Instead(the.create, found, Create);
    if (call == "vkGetDeviceProcAddr") return Instead(the.device, found, OfDevice);
    return found;
}
