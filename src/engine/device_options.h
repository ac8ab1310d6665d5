// What of its host a rank gives to its device: what a command's options and the machine's cores
// make of it, the same for inference and for training.
#pragma once

#include "backend/device.h"
#include "cluster/cluster.h"

namespace weft::engine {

// threads 0: all cores of the rank. Threads are pinned where no two ranks share a core.
backend::DeviceOptions DeviceOptionsOf(const cluster::Cluster& cluster, int threads,
                                       bool reference);

}  // namespace weft::engine
