// For builds without Vulkan's headers: no devices, with the reason.
#include "gpu/drivers.h"

namespace weft::gpu::vulkan {
namespace {

Error NotBuilt() {
    return MakeError(ErrorCode::kUnsupported,
                     "Vulkan: this weft was built without vulkan/vulkan_core.h (libvulkan-dev, "
                     "vulkan-headers)");
}

}  // namespace

Result<std::vector<Description>> ListDevices() {
    return NotBuilt();
}

Result<std::shared_ptr<Device>> OpenDevice(int, const OpenOptions&) {
    return NotBuilt();
}

}  // namespace weft::gpu::vulkan
