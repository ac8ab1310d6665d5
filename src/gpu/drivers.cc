#include "gpu/drivers.h"

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
    return DriverOf(api).list();
}

Result<std::shared_ptr<Device>> Device::Open(Api api, int index, const OpenOptions& options) {
    return DriverOf(api).open(index, options);
}

}  // namespace weft::gpu
