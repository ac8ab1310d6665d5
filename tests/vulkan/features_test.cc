// The device features that kernels declare (SPIR-V's OpCapability) are exactly those that src/gpu
// requires: no GPU is refused for a feature that no kernel uses.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string_view>

#include "shaders/shaders.h"

namespace weft::backend::on_gpu {
namespace {

// Numbers from the SPIR-V specification (3.31, capabilities), with the feature that each requires.
const std::map<uint32_t, std::string_view> kOfAll = {
    {1, "Shader"},
    {11, "shaderInt64"},
    {61, "GroupNonUniform: basic subgroup operations"},
    {63, "GroupNonUniformArithmetic: arithmetic ones"},
    {4433, "storageBuffer16BitAccess"},
    {5347, "bufferDeviceAddress"},
};
const std::map<uint32_t, std::string_view> kOfDots = {
    {6018, "DotProductInput4x8BitPacked: shaderIntegerDotProduct"},
    {6019, "DotProduct"},
};
const std::map<uint32_t, std::string_view> kOfMatrices = {
    {9, "shaderFloat16"},
    {5345, "vulkanMemoryModel"},
    {5346, "vulkanMemoryModelDeviceScope"},
    {6022, "cooperativeMatrix"},
};

std::set<uint32_t> CapabilitiesOf(std::span<const uint32_t> words) {
    constexpr size_t kHeader = 5;
    constexpr uint32_t kOpCapability = 17;
    std::set<uint32_t> found;
    for (size_t at = kHeader; at < words.size() && (words[at] & 0xffff) == kOpCapability;) {
        found.insert(words[at + 1]);
        at += words[at] >> 16;
    }
    return found;
}

TEST(VulkanFeatures, EqualThoseThatKernelsDeclare) {
    std::set<uint32_t> used;
    for (const std::string_view name : shaders::Names()) {
        const bool matrix = name.find("_matrix") != name.npos;
        for (const uint32_t capability : CapabilitiesOf(shaders::Find(name))) {
            const bool dots = name.find("_dot") != name.npos && kOfDots.contains(capability);
            const bool tiles = matrix && kOfMatrices.contains(capability);
            EXPECT_TRUE(kOfAll.contains(capability) || dots || tiles)
                << name << " declares capability " << capability;
            used.insert(capability);
        }
    }
    if (shaders::Names().empty()) GTEST_SKIP() << "built without shaders";
    for (const auto& [capability, feature] : kOfAll) {
        EXPECT_TRUE(used.contains(capability)) << feature;
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
