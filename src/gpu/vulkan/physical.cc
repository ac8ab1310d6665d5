// The properties of a physical device, and the requirements of kernels that it lacks.
#include <algorithm>
#include <cstring>

#include "gpu/vulkan/features.h"
#include "gpu/vulkan/memory.h"

namespace weft::gpu {
namespace {

// Requirements of shaders: attention and expert routing use up to 28 KiB; norms and element-wise
// kernels use workgroups of 256.
constexpr uint32_t kLeastSharedBytes = 32 << 10, kLeastInvocations = 256;
// Before this version, Mesa's lavapipe silently ended loops after 65,535 iterations.
constexpr int kLeastMesaMajor = 23, kLeastMesaMinor = 1;
constexpr VkSubgroupFeatureFlags kSubgroupOps =
    VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
// Intel's registers are at most 16 lanes wide; with subgroups of 32, its driver's default, kernels
// spill.
constexpr uint32_t kIntel = 0x8086, kIntelSubgroup = 16;

struct Properties {
    Properties() {
        base.pNext = &subgroup;
        Chain(subgroup, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, &driver);
        Chain(driver, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES, &memory);
        Chain(memory, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES, &floats);
        Chain(floats, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES, nullptr);
    }
    // Adds properties of an extension that the device must have.
    template <typename T>
    void Also(T& part, VkStructureType type) {
        Chain(part, type, base.pNext);
        base.pNext = &part;
    }
    template <typename T>
    static void Chain(T& part, VkStructureType type, void* next) {
        part.sType = type;
        part.pNext = next;
    }
    VkPhysicalDeviceProperties2 base{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, nullptr, {}};
    VkPhysicalDeviceSubgroupProperties subgroup{};
    VkPhysicalDeviceDriverProperties driver{};
    VkPhysicalDeviceMaintenance3Properties memory{};
    VkPhysicalDeviceFloatControlsProperties floats{};
    VkPhysicalDeviceSubgroupSizeControlPropertiesEXT control{};
    VkPhysicalDeviceMaintenance4PropertiesKHR buffers{};
    VkPhysicalDeviceShaderIntegerDotProductPropertiesKHR dot{};
    VkPhysicalDevicePCIBusInfoPropertiesEXT pci{};
};

Kind KindOf(VkPhysicalDeviceType type) {
    if (type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU) return Kind::kIntegrated;
    if (type == VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU) return Kind::kVirtual;
    if (type == VK_PHYSICAL_DEVICE_TYPE_CPU) return Kind::kCpu;
    return Kind::kDiscrete;
}

std::string VersionText(uint32_t version) {
    return fmt::format("{}.{}.{}", VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version),
                       VK_API_VERSION_PATCH(version));
}

SmallHalves SmallHalvesOf(const VkPhysicalDeviceFloatControlsProperties& floats) {
    if (floats.shaderDenormPreserveFloat16 != VK_TRUE) return SmallHalves::kNo;
    switch (floats.denormBehaviorIndependence) {
        case VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_ALL: return SmallHalves::kHalves;
        case VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_32_BIT_ONLY:
            return floats.shaderDenormPreserveFloat64 == VK_TRUE ? SmallHalves::kHalvesAndDoubles
                                                                 : SmallHalves::kNo;
        default: return SmallHalves::kNo;
    }
}

// Returns the reason why this driver's results are unreliable, or "".
std::string DriverFault(const VkPhysicalDeviceDriverProperties& driver) {
    if (driver.driverID != VK_DRIVER_ID_MESA_LLVMPIPE) return "";
    int major = 0, minor = 0;
    const char* mesa = std::strstr(driver.driverInfo, "Mesa ");
    if (mesa != nullptr && std::sscanf(mesa, "Mesa %d.%d", &major, &minor) == 2 &&
        std::pair(major, minor) >= std::pair(kLeastMesaMajor, kLeastMesaMinor))
        return "";
    return fmt::format(
        "lavapipe before Mesa {}.{} ends long loops early and gives wrong results; this is '{}'",
        kLeastMesaMajor, kLeastMesaMinor, driver.driverInfo);
}

std::string Lacking(const Properties& properties, const Features& has) {
    if (properties.base.properties.apiVersion < VK_API_VERSION_1_2) {
        return fmt::format("the driver supports Vulkan {}; expected 1.2 or later",
                           VersionText(properties.base.properties.apiVersion));
    }
    if (const char* name = has.FirstLacking(); name != nullptr)
        return fmt::format("the driver lacks {}", name);
    const auto ops = properties.subgroup.supportedOperations & kSubgroupOps;
    if (ops != kSubgroupOps)
        return fmt::format("the driver lacks subgroup operations (has {:#x} of {:#x})", ops,
                           kSubgroupOps);
    if ((properties.subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0)
        return "the driver lacks subgroup operations in compute shaders";
    const VkPhysicalDeviceLimits& limits = properties.base.properties.limits;
    if (limits.maxComputeSharedMemorySize < kLeastSharedBytes) {
        return fmt::format("a workgroup has {} bytes of shared memory; kernels need {}",
                           limits.maxComputeSharedMemorySize, kLeastSharedBytes);
    }
    const uint32_t invocations =
        std::min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]);
    if (invocations < kLeastInvocations) {
        return fmt::format("a workgroup has at most {} invocations; kernels need {}", invocations,
                           kLeastInvocations);
    }
    return DriverFault(properties.driver);
}

// Prefers a family without graphics: its work does not wait for a desktop.
Status ChooseQueue(const Calls& calls, Physical& physical) {
    uint32_t count = 0;
    calls.GetPhysicalDeviceQueueFamilyProperties(physical.handle, &count, nullptr);
    std::vector<VkQueueFamilyProperties> families(count);
    calls.GetPhysicalDeviceQueueFamilyProperties(physical.handle, &count, families.data());
    int best = -1;
    for (uint32_t i = 0; i < count; ++i) {
        const VkQueueFamilyProperties& family = families[i];
        if (family.queueCount == 0 || (family.queueFlags & VK_QUEUE_COMPUTE_BIT) == 0) continue;
        if (best >= 0 && (family.queueFlags & VK_QUEUE_GRAPHICS_BIT) != 0) continue;
        if (best >= 0 &&
            (families[static_cast<size_t>(best)].queueFlags & VK_QUEUE_GRAPHICS_BIT) == 0)
            continue;
        best = static_cast<int>(i);
    }
    if (best < 0) {
        physical.description.unusable = "it has no queue for compute";
        return {};
    }
    physical.queue_family = static_cast<uint32_t>(best);
    physical.timestamp_bits = families[physical.queue_family].timestampValidBits;
    return {};
}

void DescribeMemory(const Calls& calls, Physical& physical) {
    VkPhysicalDeviceMemoryProperties2 memory{};
    memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
    calls.GetPhysicalDeviceMemoryProperties2(physical.handle, &memory);
    physical.memory = memory.memoryProperties;
    Description& described = physical.description;
    constexpr VkMemoryPropertyFlags kUnified = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                               VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                               VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const bool shared = described.kind == Kind::kIntegrated || described.kind == Kind::kCpu;
    for (uint32_t i = 0; shared && i < physical.memory.memoryTypeCount; ++i) {
        const VkMemoryPropertyFlags flags = physical.memory.memoryTypes[i].propertyFlags;
        described.unified = described.unified || (flags & kUnified) == kUnified;
    }
    described.heaps = ReadHeaps(calls, physical);
}

void DescribeSubgroups(const Properties& properties, const Features& has, Physical& physical) {
    Description& described = physical.description;
    described.subgroup = properties.subgroup.subgroupSize;
    described.least_subgroup = described.most_subgroup = described.subgroup;
    physical.subgroup_control =
        has.control.subgroupSizeControl == VK_TRUE &&
        (properties.control.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    if (!physical.subgroup_control) return;
    physical.full_subgroups = has.control.computeFullSubgroups == VK_TRUE;
    described.least_subgroup = properties.control.minSubgroupSize;
    described.most_subgroup = properties.control.maxSubgroupSize;
    if (described.vendor_id != kIntel) return;
    described.subgroup =
        std::min(std::max(kIntelSubgroup, described.least_subgroup), described.most_subgroup);
}

}  // namespace

std::vector<Heap> ReadHeaps(const Calls& calls, const Physical& physical) {
    const bool budget = physical.extensions.memory_budget;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT now{};
    now.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
    VkPhysicalDeviceMemoryProperties2 memory{};
    memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
    if (budget) memory.pNext = &now;
    calls.GetPhysicalDeviceMemoryProperties2(physical.handle, &memory);
    std::vector<Heap> heaps;
    for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; ++i) {
        const VkMemoryHeap& heap = memory.memoryProperties.memoryHeaps[i];
        const uint64_t used = std::min(now.heapUsage[i], now.heapBudget[i]);
        heaps.push_back(
            {.total_bytes = heap.size,
             .free_bytes = budget ? std::min(heap.size, now.heapBudget[i] - used) : heap.size,
             .device_local = (heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0});
    }
    const bool unified = physical.description.unified;
    bool any = false;
    for (const uint32_t type :
         MemoryTypesFor(memory.memoryProperties, ~0u, Place::kDevice, unified)) {
        const VkMemoryType& of = memory.memoryProperties.memoryTypes[type];
        // A card's mapped window is part of a heap already counted, or too small to count.
        const bool window = (of.propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0;
        if (!unified && window && any) continue;
        heaps[of.heapIndex].for_kernels = any = true;
    }
    return heaps;
}

Result<Physical> Describe(const Instance& instance, VkPhysicalDevice device, int index) {
    const Calls& calls = instance.calls();
    Physical physical;
    physical.handle = device;
    WEFT_ASSIGN(const Extensions extensions, ReadExtensions(calls, device));
    Properties properties;
    if (extensions.subgroup_size_control) {
        properties.Also(properties.control,
                        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES_EXT);
    }
    if (extensions.maintenance4) {
        properties.Also(properties.buffers,
                        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES_KHR);
    }
    if (extensions.integer_dot_product) {
        properties.Also(
            properties.dot,
            VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES_KHR);
    }
    if (extensions.pci_bus_info)
        properties.Also(properties.pci,
                        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT);
    calls.GetPhysicalDeviceProperties2(device, &properties.base);
    Features has(extensions);
    calls.GetPhysicalDeviceFeatures2(device, &has.base);
    const VkPhysicalDeviceProperties& base = properties.base.properties;
    Description& described = physical.description;
    described.index = index;
    described.kind = KindOf(base.deviceType);
    described.name = base.deviceName;
    described.driver =
        fmt::format("{} {}", properties.driver.driverName, properties.driver.driverInfo);
    described.api_version = VersionText(base.apiVersion);
    if (extensions.pci_bus_info) {
        const VkPhysicalDevicePCIBusInfoPropertiesEXT& pci = properties.pci;
        described.pci = fmt::format("{:04x}:{:02x}:{:02x}.{}", pci.pciDomain, pci.pciBus,
                                    pci.pciDevice, pci.pciFunction);
    }
    described.vendor_id = base.vendorID;
    described.device_id = base.deviceID;
    described.driver_version = base.driverVersion;
    described.shared_bytes = base.limits.maxComputeSharedMemorySize;
    described.most_invocations = std::min(base.limits.maxComputeWorkGroupInvocations,
                                          base.limits.maxComputeWorkGroupSize[0]);
    std::copy_n(base.limits.maxComputeWorkGroupCount, 3, described.most_groups.begin());
    described.integer_dot = has.dot.shaderIntegerDotProduct == VK_TRUE;
    described.fast_integer_dot =
        described.integer_dot &&
        properties.dot.integerDotProduct4x8BitPackedSignedAccelerated == VK_TRUE;
    described.host_import = extensions.external_memory_host;
    std::copy_n(base.pipelineCacheUUID, VK_UUID_SIZE, physical.cache_uuid.begin());
    physical.extensions = extensions;
    physical.most_buffer_bytes = properties.memory.maxMemoryAllocationSize;
    if (extensions.maintenance4)
        physical.most_buffer_bytes =
            std::min(physical.most_buffer_bytes, properties.buffers.maxBufferSize);
    physical.small_halves = SmallHalvesOf(properties.floats);
    DescribeSubgroups(properties, has, physical);
    DescribeMemory(calls, physical);
    physical.device_coherent = has.coherent.deviceCoherentMemory == VK_TRUE;
    described.float16 = has.MatrixKernels();
    if (described.float16 && has.matrix.cooperativeMatrix == VK_TRUE) {
        WEFT_ASSIGN(described.matrix_unit, FindMatrixUnit(calls, instance.handle(), device));
        described.cooperative_matrix = described.matrix_unit.m > 0;
    }
    WEFT_TRY(ChooseQueue(calls, physical));
    if (physical.timestamp_bits > 0) described.timestamp_ns = base.limits.timestampPeriod;
    if (described.unusable.empty()) described.unusable = Lacking(properties, has);
    return physical;
}

}  // namespace weft::gpu
