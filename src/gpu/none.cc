// For builds without kernels (see cmake/shaders.cmake): no devices, with the reason.
#include "gpu/device.h"

namespace weft::gpu {
namespace {

Error NotBuilt() {
    return MakeError(ErrorCode::kUnsupported,
                     "this weft was built without GPU kernels: build it with glslc and "
                     "-DWEFT_GPU=ON");
}

}  // namespace

Result<std::vector<Description>> ListDevices(Api) {
    return NotBuilt();
}

Result<std::shared_ptr<Device>> Device::Open(Api, int, const OpenOptions&) {
    return NotBuilt();
}

}  // namespace weft::gpu
