// Chooses the device on which a rank trains: the device that --device names, or the device on which
// all ranks agree with `auto`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backend/device.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "train/parallel/layout.h"

namespace weft::train {

struct DeviceChoice {
    std::string name;  // the value of --device: one device for all ranks, or one per rank
    int threads = 0;   // 0: all cores of the rank
    bool reference = false;
};

// Opens a device and calls `plan` with it. auto: each rank takes a GPU of its host if every rank
// has one and `plan` succeeds on all of them; otherwise all ranks take CPUs, and a warning says
// why. `plan` must return kOutOfMemory on all ranks or on none; with `may_fail`, any other error
// must also occur on all ranks or on none. Collective. Errors: those of OpenDevice and `plan`.
using PlanOnDevice = std::function<Status(std::shared_ptr<backend::Device> device, bool may_fail)>;
Status ChooseDevice(const DeviceChoice& choice, cluster::Cluster& cluster,
                    const PlanOnDevice& plan);

// Ranks that update their own copies of the same weights (tensor ranks, and replicas without ZeRO)
// need devices that compute the same bits. CPUs of different kinds are accepted. Collective.
// Errors: kUsage, naming two ranks and their devices; with may_fail kUnsupported, on all ranks.
Status CheckAlike(const TrainLayout& layout, int zero, const backend::DeviceInfo& info,
                  bool may_fail, cluster::Cluster& cluster);

}  // namespace weft::train
