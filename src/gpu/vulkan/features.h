// Extensions and features of a device: the required ones, and those that Weft uses if the device
// has them.
#pragma once

#include <vector>

#include "gpu/device.h"
#include "gpu/vulkan/loader.h"

// Declarations of VK_KHR_cooperative_matrix, which headers before 1.3.255 lack. The names and
// values are taken from the Vulkan registry.
#ifndef VK_KHR_cooperative_matrix
#define VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME "VK_KHR_cooperative_matrix"
constexpr auto VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR =
    static_cast<VkStructureType>(1000506000);
constexpr auto VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR =
    static_cast<VkStructureType>(1000506001);
enum VkComponentTypeKHR { VK_COMPONENT_TYPE_FLOAT16_KHR = 0, VK_COMPONENT_TYPE_FLOAT32_KHR = 1 };
enum VkScopeKHR { VK_SCOPE_SUBGROUP_KHR = 3 };
struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
    VkStructureType sType;
    void* pNext;
    VkBool32 cooperativeMatrix;
    VkBool32 cooperativeMatrixRobustBufferAccess;
};
struct VkCooperativeMatrixPropertiesKHR {
    VkStructureType sType;
    void* pNext;
    uint32_t MSize;
    uint32_t NSize;
    uint32_t KSize;
    VkComponentTypeKHR AType;
    VkComponentTypeKHR BType;
    VkComponentTypeKHR CType;
    VkComponentTypeKHR ResultType;
    VkBool32 saturatingAccumulation;
    VkScopeKHR scope;
};
using PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR =
    VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*, VkCooperativeMatrixPropertiesKHR*);
#endif

namespace weft::gpu {

// The extensions that a device has, of all extensions that Weft uses.
struct Extensions {
    bool subgroup_size_control = false;
    bool integer_dot_product = false;
    bool cooperative_matrix = false;
    bool memory_budget = false;
    bool external_memory_host = false;
    bool maintenance4 = false;
    bool device_coherent_memory = false;
    bool pci_bus_info = false;
    std::vector<const char*> Names() const;
};
Result<Extensions> ReadExtensions(const Calls& calls, VkPhysicalDevice device);

// A structure chain for vkGetPhysicalDeviceFeatures2 and vkCreateDevice. Not copyable: its parts
// point to each other.
struct Features {
    explicit Features(const Extensions& extensions);
    Features(const Features&) = delete;
    Features& operator=(const Features&) = delete;
    // The name of the first required feature that is missing, or null.
    const char* FirstLacking() const;
    // Whether the device has all additional features that kernels with float16 arithmetic and
    // matrix units need.
    bool MatrixKernels() const;
    // Enables the features that Weft uses and `has` contains.
    void Choose(const Features& has);

    VkPhysicalDeviceFeatures2 base{};
    VkPhysicalDeviceVulkan11Features v11{};
    VkPhysicalDeviceVulkan12Features v12{};
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT control{};
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dot{};
    VkPhysicalDeviceMaintenance4FeaturesKHR maintenance4{};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix{};
    VkPhysicalDeviceCoherentMemoryFeaturesAMD coherent{};
};

// The best size of cooperative matrices that multiply f16 by f16 into f32, of those that kernels
// support (shaders/units.glsl). Zeros: the device has none of them.
Result<MatrixUnit> FindMatrixUnit(const Calls& calls, VkInstance instance, VkPhysicalDevice device);

}  // namespace weft::gpu
