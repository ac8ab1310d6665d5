// The threads and kernels of a rank: what a command's words and the machine's cores make of them,
// the same for inference and for training.
#pragma once

#include "backend/cpu/cpu_backend.h"
#include "cluster/cluster.h"

namespace weft::engine {

// threads 0: all cores of the rank. Threads are pinned where no two ranks share a core.
backend::CpuOptions CpuOptionsOf(const cluster::Cluster& cluster, int threads, bool reference);

}  // namespace weft::engine
