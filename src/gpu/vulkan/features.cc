#include "gpu/vulkan/features.h"

#include <algorithm>
#include <string_view>

namespace weft::gpu {
namespace {

constexpr std::pair<bool Extensions::*, const char*> kExtensions[] = {
    {&Extensions::subgroup_size_control, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME},
    {&Extensions::integer_dot_product, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME},
    {&Extensions::cooperative_matrix, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME},
    {&Extensions::memory_budget, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME},
    {&Extensions::external_memory_host, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME},
    {&Extensions::maintenance4, VK_KHR_MAINTENANCE_4_EXTENSION_NAME},
    {&Extensions::device_coherent_memory, VK_AMD_DEVICE_COHERENT_MEMORY_EXTENSION_NAME},
    {&Extensions::pci_bus_info, VK_EXT_PCI_BUS_INFO_EXTENSION_NAME},
};

// Features that kernels declare (tests/vulkan/features_test.cc reads them from the kernels), and
// features for memory and submissions.
constexpr std::pair<VkBool32 VkPhysicalDeviceFeatures::*, const char*> kNeeded[] = {
    {&VkPhysicalDeviceFeatures::shaderInt64, "shaderInt64"},
};
constexpr std::pair<VkBool32 VkPhysicalDeviceVulkan11Features::*, const char*> kNeeded11[] = {
    {&VkPhysicalDeviceVulkan11Features::storageBuffer16BitAccess, "storageBuffer16BitAccess"},
};
constexpr std::pair<VkBool32 VkPhysicalDeviceVulkan12Features::*, const char*> kNeeded12[] = {
    {&VkPhysicalDeviceVulkan12Features::bufferDeviceAddress, "bufferDeviceAddress"},
    {&VkPhysicalDeviceVulkan12Features::scalarBlockLayout, "scalarBlockLayout"},
    {&VkPhysicalDeviceVulkan12Features::timelineSemaphore, "timelineSemaphore"},
};
// Additional features of kernels for matrix units.
constexpr std::pair<VkBool32 VkPhysicalDeviceVulkan12Features::*, const char*> kOfMatrices[] = {
    {&VkPhysicalDeviceVulkan12Features::shaderFloat16, "shaderFloat16"},
    {&VkPhysicalDeviceVulkan12Features::vulkanMemoryModel, "vulkanMemoryModel"},
    {&VkPhysicalDeviceVulkan12Features::vulkanMemoryModelDeviceScope,
     "vulkanMemoryModelDeviceScope"},
};

// Sizes of matrix units, best first. The last two are the sizes of Intel's Xe2 and of lavapipe.
// (Not 8 x 8 x 16: Intel's driver also reports it for GPUs without matrix units.)
constexpr MatrixUnit kMatrixUnits[] = {
    {16, 16, 16},
#ifdef WEFT_SMALL_MATRIX_UNITS
    {8, 16, 16},
    {8, 8, 8},
#endif
};

bool IsOf(const VkCooperativeMatrixPropertiesKHR& one, const MatrixUnit& unit) {
    return MatrixUnit{one.MSize, one.NSize, one.KSize} == unit &&
           one.AType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
           one.BType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
           one.CType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
           one.ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR && one.scope == VK_SCOPE_SUBGROUP_KHR;
}

template <typename T>
void Link(void**& end, T& part, VkStructureType type) {
    part.sType = type;
    *end = &part;
    end = &part.pNext;
}

template <typename T, size_t kCount>
const char* FirstOff(const T& has, const std::pair<VkBool32 T::*, const char*> (&needed)[kCount]) {
    for (const auto& [member, name] : needed) {
        if (has.*member != VK_TRUE) return name;
    }
    return nullptr;
}

template <typename T, size_t kCount>
void SetAll(T& target, const std::pair<VkBool32 T::*, const char*> (&needed)[kCount]) {
    for (const auto& row : needed) target.*(row.first) = VK_TRUE;
}

}  // namespace

std::vector<const char*> Extensions::Names() const {
    std::vector<const char*> names;
    for (const auto& [member, name] : kExtensions) {
        if (this->*member) names.push_back(name);
    }
    return names;
}

Result<Extensions> ReadExtensions(const Calls& calls, VkPhysicalDevice device) {
    uint32_t count = 0;
    VkResult result = calls.EnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr);
    std::vector<VkExtensionProperties> all(count);
    if (result == VK_SUCCESS)
        result = calls.EnumerateDeviceExtensionProperties(device, nullptr, &count, all.data());
    if (result != VK_SUCCESS && result != VK_INCOMPLETE)
        return CallError("Vulkan", "vkEnumerateDeviceExtensionProperties", result);
    all.resize(count);
    Extensions extensions;
    for (const VkExtensionProperties& one : all) {
        for (const auto& [member, name] : kExtensions) {
            if (std::string_view(one.extensionName) == name) extensions.*member = true;
        }
    }
    return extensions;
}

Features::Features(const Extensions& extensions) {
    base.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    void** end = &base.pNext;
    Link(end, v11, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
    Link(end, v12, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
    if (extensions.subgroup_size_control)
        Link(end, control, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT);
    if (extensions.integer_dot_product)
        Link(end, dot, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR);
    if (extensions.maintenance4)
        Link(end, maintenance4, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES_KHR);
    if (extensions.cooperative_matrix)
        Link(end, matrix, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR);
    if (extensions.device_coherent_memory)
        Link(end, coherent, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COHERENT_MEMORY_FEATURES_AMD);
}

const char* Features::FirstLacking() const {
    if (const char* name = FirstOff(base.features, kNeeded); name != nullptr) return name;
    if (const char* name = FirstOff(v11, kNeeded11); name != nullptr) return name;
    return FirstOff(v12, kNeeded12);
}

bool Features::MatrixKernels() const {
    return FirstOff(v12, kOfMatrices) == nullptr;
}

void Features::Choose(const Features& has) {
    SetAll(base.features, kNeeded);
    SetAll(v11, kNeeded11);
    SetAll(v12, kNeeded12);
    for (const auto& row : kOfMatrices) v12.*(row.first) = has.v12.*(row.first);
    v12.shaderSubgroupExtendedTypes = has.v12.shaderSubgroupExtendedTypes;
    control.subgroupSizeControl = has.control.subgroupSizeControl;
    control.computeFullSubgroups = has.control.computeFullSubgroups;
    dot.shaderIntegerDotProduct = has.dot.shaderIntegerDotProduct;
    maintenance4.maintenance4 = has.maintenance4.maintenance4;
    matrix.cooperativeMatrix = has.matrix.cooperativeMatrix;
    coherent.deviceCoherentMemory = has.coherent.deviceCoherentMemory;
}

Result<MatrixUnit> FindMatrixUnit(const Calls& calls, VkInstance instance,
                                  VkPhysicalDevice device) {
    constexpr const char* kName = "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR";
    auto ask = reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR>(
        calls.GetInstanceProcAddr(instance, kName));
    if (ask == nullptr) return MatrixUnit{};
    uint32_t count = 0;
    VkResult result = ask(device, &count, nullptr);
    VkCooperativeMatrixPropertiesKHR blank{};
    blank.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    std::vector<VkCooperativeMatrixPropertiesKHR> all(count, blank);
    if (result == VK_SUCCESS && count > 0) result = ask(device, &count, all.data());
    if (result != VK_SUCCESS && result != VK_INCOMPLETE) return CallError("Vulkan", kName, result);
    all.resize(count);
    for (const MatrixUnit& unit : kMatrixUnits) {
        if (std::ranges::any_of(all, [&](const auto& one) { return IsOf(one, unit); })) return unit;
    }
    return MatrixUnit{};
}

}  // namespace weft::gpu
