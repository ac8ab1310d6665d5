// Whether what all ranks need fits into the memory of their machines, asked before any is touched:
// a rank that is killed for memory later can't say why.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"

namespace weft::cluster {

// What a rank needs of one memory of its machine, what it has already not counted.
struct MemoryNeed {
    std::string memory;  // "": the machine's own; else a name without line ends: "vulkan:0"
    uint64_t needed_bytes = 0;
    uint64_t free_bytes = 0;  // 0: not known
};

// What one rank needs of the memories of one machine; equal numbers are one machine.
struct RankNeeds {
    int machine = 0;
    std::vector<MemoryNeed> needs;
};

// A memory that does not hold what its ranks need of it.
struct MemoryLack {
    int machine = 0;
    std::string memory;  // as in MemoryNeed
    uint64_t needed_bytes = 0, free_bytes = 0;
    std::vector<int> ranks;  // that need of it
};
// The first, by machine and memory; none: all fits. By rank. This is what admission means: a
// cluster's ranks ask it before they load (CheckMemory), and `weft plan` of machines that are only
// described.
std::optional<MemoryLack> FindLack(std::span<const RankNeeds> ranks);

// what: "model.gguf"; of: what the bytes are; advice: what to do about it. All ranks call it.
// Errors: kOutOfMemory, the same on all ranks, naming the machine and its ranks' bytes; links'.
Status CheckMemory(Cluster& cluster, std::span<const MemoryNeed> needs, const std::string& what,
                   const std::string& of, const std::string& advice);

}  // namespace weft::cluster
