// The GPU (support/lavapipe.h) for tests of whole Programs.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/gpu_device.h"
#include "support/lavapipe.h"
#include "support/shared_objects.h"

namespace weft::backend {

// The name of the first usable device; "" and the reason if there is none.
inline std::string UsableName(std::string* why) {
    const gpu::Api api = weft::test::TestApi();
    if (api == gpu::Api::kVulkan) weft::test::PointAtLavapipe();
    *why = "the driver lists no device";
    const auto all = gpu::ListDevices(api);
    if (!all.ok()) *why = all.error().message;
    for (const gpu::Description& gpu : all.ok() ? *all : std::vector<gpu::Description>{}) {
        const std::string name = fmt::format("{}:{}", gpu::ApiName(api), gpu.index);
        const auto info = on_gpu::Describe(name, {});
        if (info.ok()) return name;
        *why = info.error().message;
    }
    return "";
}

// (Unlike lavapipe, a GPU would round activations by default.)
inline std::shared_ptr<Device> OpenVulkan(const on_gpu::Limits& limits = {}) {
    std::string why;
    DeviceOptions options;
    options.exact = weft::test::TestApi() != gpu::Api::kVulkan;
    return on_gpu::Open(UsableName(&why), options, limits).value();
}
// For tests on one thread: kernels are compiled once.
inline std::shared_ptr<Device> TheVulkan() {
    return weft::test::kSharedObjects->Get("device", [] { return OpenVulkan(); });
}

#define WEFT_NEEDS_VULKAN()                        \
    if (std::string why; UsableName(&why).empty()) \
    GTEST_SKIP() << "no Vulkan device to test with: " << why

}  // namespace weft::backend
