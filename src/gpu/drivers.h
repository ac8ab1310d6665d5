// The functions of each driver's folder behind gpu/device.h, under the folder's name.
#pragma once

#include <memory>
#include <vector>

#include "gpu/device.h"

namespace weft::gpu {

namespace vulkan {
Result<std::vector<Description>> ListDevices();
Result<std::shared_ptr<Device>> OpenDevice(int index, const OpenOptions& options);
}  // namespace vulkan
namespace cuda {
Result<std::vector<Description>> ListDevices();
Result<std::shared_ptr<Device>> OpenDevice(int index, const OpenOptions& options);
}  // namespace cuda
namespace hip {
Result<std::vector<Description>> ListDevices();
Result<std::shared_ptr<Device>> OpenDevice(int index, const OpenOptions& options);
}  // namespace hip

}  // namespace weft::gpu
