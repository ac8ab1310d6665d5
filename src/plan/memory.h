// Memory of each rank of a layout, by the same code by which ranks ask for it before they load: the
// Program of a share, what an executable of it holds (engine/rank_options.h,
// backend/memory_plan.h), and whether the machines' memories hold what all their ranks need
// (cluster/memory_check.h). So what fits here, `weft run` and `weft serve` admit on such a machine.
//
// Of a stage of many layers a Program of a few is planned, with the same ends: as many as it takes
// until each neighbourhood of kinds of layers has been there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/memory_check.h"
#include "engine/job.h"
#include "plan/machine.h"
#include "plan/walk.h"

namespace weft::plan {

struct MemoryUse {
    int rank = 0;
    // work: activations, scratch memory; process: the host's, where that is the same memory.
    uint64_t weights = 0, cache = 0, work = 0, process = 0;
    // Of its memory, the device's or the host's, and what all ranks there need of it (ShareMemory).
    double room = 0, needed = 0;
    double total() const { return static_cast<double>(weights + cache + work + process); }
};

class MemoryPlanner {
  public:
    // job: ctx, kv_tokens, chunk, max_outputs and kv_dtype count. one_host: all ranks of the layout
    // are on one host. Borrows the walk.
    MemoryPlanner(const ModelWalk& walk, engine::Job job, bool one_host)
        : walk_(walk), job_(std::move(job)), one_host_(one_host) {}
    // Errors: those of BuildProgram.
    Result<MemoryUse> Of(const model::Shard& shard, const Machine& machine);

  private:
    Result<MemoryUse> Plan(const model::Shard& shard, const Machine& machine);
    Result<backend::MemoryUse> PlanPart(const model::Shard& part, const Machine& machine);
    Result<backend::MemoryUse> PlanNew(const model::Shard& part, const Machine& machine) const;

    const ModelWalk& walk_;
    engine::Job job_;
    bool one_host_;
    std::map<std::string, MemoryUse> known_;           // by what makes two shards need the same
    std::map<std::string, backend::MemoryUse> parts_;  // of few layers, likewise
};

// Fills in what the ranks of each memory need of it together. host_of: by rank of the cluster.
void ShareMemory(std::span<MemoryUse> ranks, const ClusterSpec& cluster,
                 std::span<const int> host_of);

// By rank. None: all fits.
std::optional<cluster::MemoryLack> FindLack(std::span<const MemoryUse> ranks,
                                            const ClusterSpec& cluster,
                                            std::span<const int> host_of);

// How many of the first layers have each neighbourhood of kinds that all of them have and two more,
// the same end and the same parity. kinds: by layer.
int64_t TypicalLayers(std::span<const int> kinds);

}  // namespace weft::plan
