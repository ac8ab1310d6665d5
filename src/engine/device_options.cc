#include "engine/device_options.h"

namespace weft::engine {

backend::DeviceOptions DeviceOptionsOf(const cluster::Cluster& cluster, int threads,
                                       bool reference) {
    backend::DeviceOptions options;
    options.cores = cluster.cores();
    options.threads = threads > 0 ? threads : static_cast<int>(options.cores.size());
    options.cores_shared =
        cluster.cores_shared() || options.threads > static_cast<int>(options.cores.size());
    if (options.cores_shared) options.cores.clear();
    options.reference = reference;
    return options;
}

}  // namespace weft::engine
