// Checks, before loading, that the needs of all ranks fit into their machines' memory. (If the
// kernel killed a rank later for lack of memory, the rank could not report the reason.)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "cluster/worker/memory_claims.h"

namespace weft::cluster {

// Needs of one rank; equal numbers mean the same machine.
struct RankNeeds {
    int machine = 0;
    std::vector<MemoryNeed> needs;
};

// A memory that is too small for its ranks.
struct MemoryLack {
    int machine = 0;
    std::string memory;  // as in MemoryNeed
    uint64_t needed_bytes = 0, free_bytes = 0;
    std::vector<int> ranks;      // ranks that need it
    uint64_t claimed_bytes = 0;  // as in MemoryNeed
    std::string claimants{};
};
// The first memory that is too small, in the order of machines and memories; nullopt: everything
// fits. ranks: by rank. A cluster's ranks use it before they load (CheckMemory), and `weft plan`
// for described machines.
std::optional<MemoryLack> FindLack(std::span<const RankNeeds> ranks);

// The memory of these hosts together, in bytes. Ranks of one kernel share its memory; each control
// group with a limit has its own part of it (pods, containers).
uint64_t MemoryOf(std::span<const HostInfo> hosts);

// Bytes of the host's memory that the windows of this rank's links use as they fill. (RDMA's
// windows are pinned already.)
uint64_t WindowsBytes(Cluster& cluster);

// what: "model.gguf"; of: the kind of the bytes; advice: the next step. All ranks call it. Claims
// the needs if they fit (memory_claims.h). Errors: kOutOfMemory, the same on all ranks, with the
// machine, its ranks' bytes and the claims of other jobs in the message; the cluster's.
Status CheckMemory(Cluster& cluster, std::span<const MemoryNeed> needs, const std::string& what,
                   const std::string& of, const std::string& advice);

}  // namespace weft::cluster
