// Chooses the device on which a rank trains: the one that --device names or, for --device auto, the
// kind on which all ranks agree.
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

// Opens a device and calls `plan` with it. With `auto`, each rank uses a GPU of its host if every
// rank has one and `plan` succeeds on all ranks. Otherwise all ranks use CPUs, and a warning states
// the reason. `plan` must return kOutOfMemory on all ranks or on none. If its argument may_fail is
// set, this holds for any other error, too. Collective. Errors: those of OpenDevice and `plan`.
using PlanOnDevice = std::function<Status(std::shared_ptr<backend::Device> device, bool may_fail)>;
Status ChooseDevice(const DeviceChoice& choice, cluster::Cluster& cluster,
                    const PlanOnDevice& plan);

// Ranks that update their own copies of the same weights (tensor ranks, and replicas without ZeRO)
// need devices that compute the same bits. CPUs of different kinds are accepted. Collective.
// Errors: kUsage, naming two ranks and their devices, on the ranks concerned. If may_fail is set:
// kUnsupported with the same text, on all ranks.
Status CheckAlike(const TrainLayout& layout, int zero, const backend::DeviceInfo& info,
                  bool may_fail, cluster::Cluster& cluster);

}  // namespace weft::train
