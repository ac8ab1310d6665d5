// The threads and kernels of a rank.
#pragma once

#include "backend/cpu/cpu_backend.h"
#include "cluster/cluster.h"

namespace weft::engine {

// threads 0: all cores of the rank. Threads are pinned where no two ranks share a core.
backend::CpuOptions CpuOptionsOf(const cluster::Cluster& cluster, int threads, bool reference);

}  // namespace weft::engine
