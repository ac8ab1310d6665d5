# Read by ctest. The suites that compute longest begin beside the programs that wait longest
# (tests/CMakeLists.txt), in turn, so that no core is idle.
set(cost 2999)
foreach(suite vulkan.VulkanGemm vulkan.VulkanIntegers vulkan.VulkanExecutable vulkan.VulkanGlu
    vulkan.VulkanProducts vulkan.VulkanAttention vulkan.VulkanMatrix vulkan.VulkanEncodes
    vulkan.VulkanGate vulkan.VulkanCausal train.Models/OnGpu vulkan.VulkanRoute
    backend.All/FamilyModels vulkan.VulkanLatent)
  set_tests_properties(${suite} PROPERTIES COST ${cost})
  math(EXPR cost "${cost} - 2")
endforeach()
