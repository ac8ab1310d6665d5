#include "gpu/drivers.h"

#include <algorithm>

#include "gpu/visible.h"

namespace weft::gpu {
namespace {

struct Driver {
    Result<std::vector<Description>> (*list)();
    Result<std::shared_ptr<Device>> (*open)(int index, const OpenOptions& options);
};

Driver DriverOf(Api api) {
    switch (api) {
        case Api::kVulkan: return {vulkan::ListDevices, vulkan::OpenDevice};
        case Api::kCuda: return {cuda::ListDevices, cuda::OpenDevice};
        case Api::kHip: return {hip::ListDevices, hip::OpenDevice};
    }
    return {};
}

}  // namespace

Result<std::vector<Description>> ListDevices(Api api) {
    WEFT_ASSIGN(std::vector<Description> devices, DriverOf(api).list());
    if (api != Api::kVulkan) return devices;  // the driver obeys the variables
    for (const Api owner : {Api::kCuda, Api::kHip}) {
        const std::string text = VisibleText(owner);
        const bool any = std::ranges::any_of(
            devices, [&](const Description& one) { return IsFor(owner, one.vendor_id); });
        if (!any || text.empty()) continue;
        const auto shown = DriverOf(owner).list();
        // (A user of NVIDIA's cards sets CUDA's variable, which needs no HIP driver.)
        const bool foreign = owner == Api::kHip && text.starts_with("CUDA_");
        if (shown.ok() || !foreign) HideOthers(owner, text, shown, devices);
    }
    return devices;
}

Result<std::shared_ptr<Device>> Device::Open(Api api, int index, const OpenOptions& options) {
    return DriverOf(api).open(index, options);
}

}  // namespace weft::gpu
