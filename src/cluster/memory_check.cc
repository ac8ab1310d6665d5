#include "cluster/memory_check.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "hw/cpu.h"

namespace weft::cluster {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr int64_t kAgreeMs = 600'000;

struct Machine {
    uint64_t needed = 0, available = 0;
    std::string name, sum;
};

}  // namespace

Status CheckMemory(Cluster& cluster, uint64_t needed_bytes, const std::string& what,
                   const std::string& of, const std::string& advice) {
    WEFT_ASSIGN(
        const std::vector<std::string> all,
        cluster.AllGather("memory", fmt::format("{} {}", needed_bytes, AvailableMemoryBytes()),
                          Deadline::In(kAgreeMs)));
    std::map<std::string, Machine> machines;
    for (int rank = 0; rank < cluster.size(); ++rank) {
        const HostInfo& host = cluster.host(rank);
        Machine& machine = machines[host.boot_id];
        char* end = nullptr;
        const uint64_t needed = std::strtoull(all[static_cast<size_t>(rank)].c_str(), &end, 10);
        const uint64_t available = std::strtoull(end, nullptr, 10);
        machine.name = host.name;
        machine.needed += needed;
        machine.available = std::max(machine.available, available);
        machine.sum += fmt::format("{}rank {}: {:.0f} MiB", machine.sum.empty() ? "" : " + ", rank,
                                   static_cast<double>(needed) / kMiB);
    }
    for (const auto& [boot, machine] : machines) {
        if (machine.available == 0 || machine.needed <= machine.available) continue;
        return MakeError(ErrorCode::kOutOfMemory,
                         "{} does not fit into the memory of {}: {} = {:.0f} MiB ({}), but {:.0f} "
                         "MiB are free. {}",
                         what, machine.name, machine.sum,
                         static_cast<double>(machine.needed) / kMiB, of,
                         static_cast<double>(machine.available) / kMiB, advice);
    }
    return {};
}

}  // namespace weft::cluster
