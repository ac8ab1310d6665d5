// A device that leaves some ops to the host's processor: the experts of a model whose other weights
// fit into a GPU, or whole layers (program/placement.h). Callers see one Device, whose Executable
// holds the weights of both.
#pragma once

#include <memory>

#include "backend/device.h"
#include "program/placement.h"

namespace weft::backend {

// The DeviceInfo of a placed device: the device's DeviceInfo, with both identities. host_ops: the
// ops that the host, a processor, runs.
DeviceInfo DescribePlaced(DeviceInfo device, const DeviceInfo& host,
                          const program::HostOps& host_ops);
std::shared_ptr<Device> MakePlacedDevice(std::shared_ptr<Device> device,
                                         std::shared_ptr<Device> host,
                                         const program::HostOps& host_ops);

}  // namespace weft::backend
