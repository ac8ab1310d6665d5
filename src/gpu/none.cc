// For builds without Vulkan (see cmake/shaders.cmake): no devices, with the reason.
#include "gpu/device.h"

namespace weft::gpu {
namespace {

Error NotBuilt() {
    return MakeError(ErrorCode::kUnsupported,
                     "this weft was built without Vulkan: build it with vulkan/vulkan_core.h "
                     "(libvulkan-dev), glslc and -DWEFT_VULKAN=ON");
}

}  // namespace

struct Buffer::Held {};
Buffer::Buffer() = default;
Buffer::Buffer(Buffer&&) noexcept = default;
Buffer& Buffer::operator=(Buffer&&) noexcept = default;
Buffer::~Buffer() = default;

Result<std::vector<Description>> ListDevices() {
    return NotBuilt();
}

Result<std::shared_ptr<Device>> Device::Open(int, const OpenOptions&) {
    return NotBuilt();
}

}  // namespace weft::gpu
