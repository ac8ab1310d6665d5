// Memory of each rank of a layout. Uses the code that ranks run before they load: the Program of a
// shard, the memory of its executable (engine/rank_options.h, backend/memory_plan.h), and the check
// that each machine's memory holds the needs of all its ranks (cluster/memory_check.h). `weft run`
// and `weft serve` therefore accept on such a machine what fits here.
//
// For a stage of many layers, a Program of few layers with the same ends is planned: enough that
// each layer kind occurs with each pair of its neighbors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/memory_plan.h"
#include "base/result.h"
#include "cluster/memory_check.h"
#include "engine/job.h"
#include "plan/machine.h"
#include "plan/walk.h"

namespace weft::plan {

struct MemoryUse {
    int rank = 0;
    // work: activations, scratch memory; process: host memory of the process, if it is in the same
    // pool.
    uint64_t weights = 0, cache = 0, work = 0, process = 0;
    // room: size of the rank's memory (the device's or the host's). needed: demand of all ranks
    // that share it (ShareMemory).
    double room = 0, needed = 0;
    double total() const { return static_cast<double>(weights + cache + work + process); }
};

class MemoryPlanner {
  public:
    // job: only ctx, kv_tokens, chunk, max_outputs and kv_dtype are used. Borrows the walk.
    MemoryPlanner(const ModelWalk& walk, engine::Job job) : walk_(walk), job_(std::move(job)) {}
    // one_host: all ranks of the layout are on one host. Errors: those of BuildProgram.
    Result<MemoryUse> Of(const model::Shard& shard, const Machine& machine, bool one_host);

  private:
    // What the memory of a shard depends on beside the shard.
    struct Device {
        backend::DescribedDevice described;
        bool one_host;
    };
    Result<MemoryUse> Plan(const model::Shard& shard, const Device& device);
    Result<backend::MemoryUse> PlanPart(const model::Shard& part, const Device& device);
    Result<backend::MemoryUse> PlanNew(const model::Shard& part, const Device& device) const;

    const ModelWalk& walk_;
    engine::Job job_;
    std::map<std::string, MemoryUse> known_;           // by all that the memory depends on
    std::map<std::string, backend::MemoryUse> parts_;  // plans of few layers, likewise
};

// Sets `needed` of ranks that share a memory. host_of: by rank of the cluster.
void ShareMemory(std::span<MemoryUse> ranks, const ClusterSpec& cluster,
                 std::span<const int> host_of);

// A memory that is too small for its ranks; nullopt: all fits. ranks: by rank.
std::optional<cluster::MemoryLack> FindLack(std::span<const MemoryUse> ranks,
                                            const ClusterSpec& cluster,
                                            std::span<const int> host_of);

// Smallest number of first layers that have each neighborhood (a kind and its two neighbors) of
// all layers, and two more, with the same end and parity as all. kinds: by layer.
int64_t TypicalLayers(std::span<const int> kinds);

}  // namespace weft::plan
