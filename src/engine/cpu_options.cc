#include "engine/cpu_options.h"

#include "hw/cpu.h"

namespace weft::engine {

backend::CpuOptions CpuOptionsOf(const cluster::Cluster& cluster, int threads, bool reference) {
    backend::CpuOptions options;
    options.cores = cluster.cores();
    options.threads = threads > 0 ? threads : static_cast<int>(options.cores.size());
    options.cores_shared =
        cluster.cores_shared() || options.threads > static_cast<int>(options.cores.size());
    if (options.cores_shared) options.cores.clear();
    options.level = reference ? CpuLevel::kReference : BestCpuLevel(DetectCpu());
    return options;
}

}  // namespace weft::engine
