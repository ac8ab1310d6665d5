// What a rank trains on: the device that --device names, or the one that all ranks come to with
// `auto`.
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
    std::string name;  // as --device has it: one for all ranks, or one for each
    int threads = 0;   // 0: all cores of the rank
    bool reference = false;
};

// Opens a device and calls `plan` with it. auto: each rank takes a GPU of its host, if every rank
// has one and `plan` succeeds there on all; else all take processors, with a warning that says why.
// `plan` has to come to kOutOfMemory on all ranks or on none; with `may_fail` any other failure of
// one rank does so, too. All ranks call it together. Errors: those of OpenDevice and of `plan`.
using PlanOnDevice = std::function<Status(std::shared_ptr<backend::Device> device, bool may_fail)>;
Status ChooseDevice(const DeviceChoice& choice, cluster::Cluster& cluster,
                    const PlanOnDevice& plan);

// Ranks that keep copies of the same weights, each with updates of its own, need devices that give
// the same bits: tensor ranks, and replicas without ZeRO. Processors of different kinds pass. All
// ranks call it together. Errors: kUsage, naming two ranks and their devices; with may_fail
// kUnsupported, on all ranks.
Status CheckAlike(const TrainLayout& layout, int zero, const backend::DeviceInfo& info,
                  bool may_fail, cluster::Cluster& cluster);

}  // namespace weft::train
