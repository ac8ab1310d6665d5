// A device without a GPU, for tests: lavapipe from tools/setup.sh, or the system's. With
// WEFT_TEST_API=cuda or hip: the first device of that driver, which is a stand-in
// (tests/gpu/standin) or a GPU.
//
//     WEFT_LAVAPIPE_OR_SKIP(device);   // std::shared_ptr<gpu::Device> device, or the test skips
//
// ctest sets the library path (LD_LIBRARY_PATH; WEFT_LAVAPIPE names the folder); set both to start
// a test program by hand. With WEFT_TEST_GPU=1 tests use any GPU that Weft supports.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "support/shared_objects.h"

namespace weft::test {

// The loader reads these variables when it creates an instance. If the validation layer is
// installed, all devices use it.
inline void PointAtLavapipe() {
    const char* folder = std::getenv("WEFT_LAVAPIPE");
    if (folder == nullptr || *folder == 0) return;
    const std::string json = std::string(folder) + "/icd.json";
    if (::access(json.c_str(), R_OK) != 0) return;  // not installed: use the system's drivers
    ::setenv("VK_DRIVER_FILES", json.c_str(), 0);
    ::setenv("VK_ICD_FILENAMES", json.c_str(), 0);
    const std::string layers = std::string(folder) + "/layers";
    ::setenv("VK_LAYER_PATH", layers.c_str(), 0);
    if (::access((layers + "/VkLayer_khronos_validation.json").c_str(), R_OK) == 0) {
        ::setenv("WEFT_VULKAN_VALIDATE", "1", 0);
    }
}

// Keeps a GPU's driver loaded. NVIDIA's driver (580) stops listing devices after a process has
// loaded it some dozens of times. Tests would do so, because each opens a device and lists the
// devices.
inline void HoldGpu(int index) {
    const auto& held = kSharedObjects->Get(
        "held gpu", [&] { return gpu::Device::Open(gpu::Api::kVulkan, index); });
    if (!held.ok()) std::fprintf(stderr, "gpu %d: %s\n", index, held.error().message.c_str());
}

// The driver to test.
inline gpu::Api TestApi() {
    const char* wanted = std::getenv("WEFT_TEST_API");
    for (const gpu::Api api : gpu::kApis) {
        if (wanted != nullptr && std::string_view(wanted) == gpu::ApiName(api)) return api;
    }
    return gpu::Api::kVulkan;
}

// Index of the device; error: the reason why there is none.
inline Result<int> FindLavapipe() {
    const gpu::Api api = TestApi();
    if (api == gpu::Api::kVulkan) PointAtLavapipe();
    WEFT_ASSIGN(const std::vector<gpu::Description> devices, gpu::ListDevices(api));
    const bool any = std::getenv("WEFT_TEST_GPU") != nullptr || api != gpu::Api::kVulkan;
    std::string faults;
    for (const gpu::Description& one : devices) {
        if (one.kind != gpu::Kind::kCpu && !any) continue;
        if (one.unusable.empty()) {
            if (one.kind != gpu::Kind::kCpu && api == gpu::Api::kVulkan) HoldGpu(one.index);
            return one.index;
        }
        faults += "; " + one.unusable;
    }
    return MakeError(ErrorCode::kUnsupported,
                     "no lavapipe of Mesa 23.1 or newer among {} Vulkan devices{} (./test brings "
                     "one: bring_lavapipe of tools/setup.sh)",
                     devices.size(), faults);
}

// Enables the validation layer if it is installed, unless `options` decides otherwise.
inline Result<std::shared_ptr<gpu::Device>> OpenLavapipe(gpu::OpenOptions options = {}) {
    WEFT_ASSIGN(const int index, FindLavapipe());
    const bool asked = options.validate;
    options.validate = true;
    auto device = gpu::Device::Open(TestApi(), index, options);
    if (device.ok() || asked || device.error().code != ErrorCode::kUnsupported) return device;
    options.validate = false;
    return gpu::Device::Open(TestApi(), index, options);
}

}  // namespace weft::test

#define WEFT_LAVAPIPE_OR_SKIP(name, ...)                                \
    ::std::shared_ptr<::weft::gpu::Device> name;                        \
    if (const auto found = ::weft::test::FindLavapipe(); !found.ok()) { \
        GTEST_SKIP() << found.error().message;                          \
    } else {                                                            \
        auto opened = ::weft::test::OpenLavapipe(__VA_ARGS__);          \
        ASSERT_TRUE(opened.ok()) << opened.error().message;             \
        name = *std::move(opened);                                      \
    }
