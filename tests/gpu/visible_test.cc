// CUDA_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES choose among Vulkan's devices, too.
#include "gpu/visible.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace weft::gpu {
namespace {

constexpr uint32_t kNvidia = 0x10de, kAmd = 0x1002;

Description Gpu(Api api, int index, uint32_t vendor, const std::string& pci) {
    Description gpu;
    gpu.api = api;
    gpu.index = index;
    gpu.vendor_id = vendor;
    gpu.pci = pci;
    return gpu;
}

// Vulkan's list: three cards of NVIDIA, and one of AMD between them.
std::vector<Description> Machine() {
    return {Gpu(Api::kVulkan, 0, kNvidia, "0000:a0:00.0"),
            Gpu(Api::kVulkan, 1, kAmd, "0000:c1:00.0"),
            Gpu(Api::kVulkan, 2, kNvidia, "0000:a1:00.0"),
            Gpu(Api::kVulkan, 3, kNvidia, "0000:a2:00.0")};
}

// The numbers of the usable devices, in the list's order.
std::vector<int> Usable(const std::vector<Description>& devices) {
    std::vector<int> usable;
    for (const Description& gpu : devices) {
        if (gpu.unusable.empty()) usable.push_back(gpu.index);
    }
    return usable;
}

using Shown = Result<std::vector<Description>>;
using Numbers = std::vector<int>;

TEST(GpuVisible, OnlyTheDriversListStaysInItsOrder) {
    std::vector<Description> devices = Machine();
    const std::vector<Description> shown = {Gpu(Api::kCuda, 0, kNvidia, "0000:a2:00.0"),
                                            Gpu(Api::kCuda, 1, kNvidia, "0000:a0:00.0")};
    HideOthers(Api::kCuda, "CUDA_VISIBLE_DEVICES=2,0", shown, devices);
    EXPECT_EQ(Usable(devices), (Numbers{3, 1, 0}));
    EXPECT_EQ(devices[3].index, 2);
    EXPECT_TRUE(devices[3].hidden);
    EXPECT_EQ(devices[3].unusable, "CUDA_VISIBLE_DEVICES=2,0 hides it");
}

TEST(GpuVisible, AnEmptyListHidesAll) {
    std::vector<Description> devices = Machine();
    devices[0].unusable = "old";
    HideOthers(Api::kCuda, "CUDA_VISIBLE_DEVICES=", std::vector<Description>(), devices);
    EXPECT_EQ(Usable(devices), Numbers{1});
    EXPECT_EQ(devices[0].unusable, "old");
}

// Without the vendor's driver, the order of its device numbers is unknown.
TEST(GpuVisible, WithoutTheDriverOnlyASingleFirstCardIsKnown) {
    const Shown none = MakeError(ErrorCode::kUnsupported, "no libamdhip64.so");
    std::vector<Description> devices = Machine();
    HideOthers(Api::kHip, "HIP_VISIBLE_DEVICES=0", none, devices);
    EXPECT_EQ(Usable(devices), (Numbers{0, 1, 2, 3}));
    HideOthers(Api::kHip, "ROCR_VISIBLE_DEVICES=GPU-1 HIP_VISIBLE_DEVICES=1", none, devices);
    EXPECT_EQ(Usable(devices), (Numbers{0, 2, 3}));
    HideOthers(Api::kCuda, "CUDA_VISIBLE_DEVICES=0", none, devices);
    EXPECT_EQ(Usable(devices), Numbers{});
    EXPECT_FALSE(devices[0].hidden);  // `auto` names the reason
    EXPECT_EQ(
        devices[0].unusable,
        "CUDA_VISIBLE_DEVICES=0 may hide it, and the CUDA driver, which numbers the GPUs, does "
        "not start. Unset the variable, or: no libamdhip64.so");
}

// HIP applies ROCR's variable first, then its own or, if that is unset, CUDA's.
TEST(GpuVisible, HipReadsCudasVariableWithoutItsOwn) {
    constexpr const char* kNames[] = {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                                      "CUDA_VISIBLE_DEVICES"};
    const std::string rocr = "ROCR_VISIBLE_DEVICES=1", hip = "HIP_VISIBLE_DEVICES=1",
                      cuda = "CUDA_VISIBLE_DEVICES=1";
    const std::string want[] = {
        "", rocr, hip, rocr + " " + hip, cuda, rocr + " " + cuda, hip, rocr + " " + hip};
    for (size_t set = 0; set < 8; ++set) {
        for (size_t i = 0; i < 3; ++i) {
            (set >> i & 1) != 0 ? setenv(kNames[i], "1", 1) : unsetenv(kNames[i]);
        }
        EXPECT_EQ(VisibleText(Api::kHip), want[set]) << set;
        EXPECT_EQ(VisibleText(Api::kCuda), set >= 4 ? cuda : "") << set;
    }
    setenv(kNames[1], "", 1);  // as if it were not set
    EXPECT_EQ(VisibleText(Api::kHip), rocr + " " + cuda);
    setenv(kNames[2], "", 1);  // hides all GPUs of CUDA, and none of HIP
    EXPECT_EQ(VisibleText(Api::kHip), rocr);
    for (const char* name : kNames) unsetenv(name);
}

}  // namespace
}  // namespace weft::gpu
