#include "engine/rank/device_options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/device_list.h"
#include "hw/control_group.h"
#include "hw/cpu.h"

namespace weft::engine {

int DefaultThreads(size_t cores, std::optional<double> quota) {
    const auto all = static_cast<double>(std::max<size_t>(1, cores));
    return static_cast<int>(std::clamp(std::floor(quota.value_or(all)), 1.0, all));
}

backend::DeviceOptions DeviceOptionsOf(const cluster::Cluster& cluster, int threads, bool reference,
                                       bool exact) {
    backend::DeviceOptions options;
    options.cores = cluster.cores();
    options.threads = threads > 0 ? threads : DefaultThreads(options.cores.size(), CpuQuota());
    options.cores_shared =
        cluster.cores_shared() || options.threads > static_cast<int>(options.cores.size());
    if (options.cores_shared) options.cores.clear();
    options.reference = reference;
    options.exact = exact;
    options.stopped = [&cluster] { return cluster.stop_requested(); };
    return options;
}

int LocalRankOf(const cluster::Cluster& cluster, std::string_view devices) {
    const auto name = [&](int rank) {
        const auto found = backend::DeviceOfRank(devices, rank, cluster.size());
        return found.ok() ? *found : std::string();
    };
    int local = 0;
    for (int rank = 0; rank < cluster.rank(); ++rank) {
        const bool here = cluster.host(rank).boot_id == cluster.host(cluster.rank()).boot_id;
        local += here && name(rank) == name(cluster.rank()) ? 1 : 0;
    }
    return local;
}

std::vector<cluster::MemoryNeed> MemoryNeeds(const backend::MemoryPool& pool,
                                             const std::string& name, uint64_t device_bytes,
                                             uint64_t host_bytes, uint64_t host_free) {
    if (pool.kind != backend::MemoryKind::kDevice) {
        return {{"", device_bytes + host_bytes, pool.free_bytes}};
    }
    return {{"", host_bytes, host_free}, {name, device_bytes, pool.free_bytes}};
}

void AddGroup(std::vector<cluster::MemoryNeed>& needs, const GroupMemory& group, uint64_t bytes) {
    std::string name = "the memory limit " + group.path;
    std::ranges::replace(name, '\n', ' ');
    needs.push_back({std::move(name), bytes, group.left_bytes});
}

std::vector<cluster::MemoryNeed> MemoryNeeds(const backend::Device& device, uint64_t device_bytes,
                                             uint64_t host_bytes, bool again,
                                             const std::optional<GroupMemory>& group) {
    const backend::MemoryPool pool = device.pool();
    auto needs =
        MemoryNeeds(pool, device.info().name, device_bytes, host_bytes, MachineMemoryBytes());
    const bool apart = needs.size() > 1;
    const uint64_t held[] = {apart ? ResidentBytes() : pool.held_bytes, pool.held_bytes};
    for (size_t i = 0; again && i < needs.size(); ++i) {
        needs[i].needed_bytes -= std::min(needs[i].needed_bytes, held[i]);
    }
    const bool host = pool.kind == backend::MemoryKind::kHost;
    if (group && host) needs[0].free_bytes = MachineMemoryBytes();
    needs[0].resident = host || apart;
    if (apart) needs[1].resident = false;
    const uint64_t held_by_host = again ? std::min(host_bytes, ResidentBytes()) : 0;
    const uint64_t counted = pool.limited ? needs[0].needed_bytes : host_bytes - held_by_host;
    if (group) AddGroup(needs, *group, counted);
    if (group) needs.back().resident = host || !pool.limited;
    return needs;
}

Error WithDevice(const cluster::Cluster& cluster, const Status& device, Error error) {
    if (device.ok() || cluster.size() == 1) return error;
    return MakeError(ErrorCode::kPeerLost, "rank {} (host {}) has lost its device: {}",
                     cluster.rank(), cluster.host(cluster.rank()).name, error.message);
}

}  // namespace weft::engine
