// Memory of each rank of a layout. Uses the code that ranks run before they load: the Program of a
// shard, the memory of its executable (engine/rank/rank_options.h, backend/memory_plan.h), and the
// check that each machine's memory is large enough for all its ranks
// (cluster/worker/memory_check.h). `weft run` and `weft serve` therefore accept a layout that fits
// here.
//
// A stage of many layers would take long to plan. Instead, a Program with the stage's first layers
// is planned. It has enough layers that each kind of layer (plan/walk.h) occurs with each pair of
// neighbors, and it ends like the stage (TypicalLayers).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/memory_plan.h"
#include "base/result.h"
#include "cluster/worker/memory_check.h"
#include "engine/job.h"
#include "plan/machine.h"
#include "plan/walk.h"
#include "program/placement.h"

namespace weft::plan {

// The part of a rank that its host's processor computes: experts that do not fit into its GPU.
struct HostUse {
    int64_t layers = 0, of_layers = 0;  // layers with ops there; all that may have some
    int64_t end = 0;                    // one more than the last of these layers
    std::map<int, int64_t> kinds;       // these layers by their kind (plan/walk.h)
    // Bytes. cache: of layers that are the host's as a whole. work: activations, scratch memory,
    // the process.
    uint64_t weights = 0, cache = 0, work = 0;
    double on_drive = 0;  // share of the weights that stays on the drive
    // The host's memory, and the bytes of it that all its ranks need (ShareMemory).
    double room = 0, needed = 0;
    bool is_used() const { return layers > 0; }
    double total() const {
        return static_cast<double>(weights) * (1 - on_drive) + static_cast<double>(cache + work);
    }
};

struct MemoryUse {
    int rank = 0;
    // work: activations and scratch memory. process: host memory of the process and of its links'
    // windows, counted only if the device uses host memory, too.
    uint64_t weights = 0, cache = 0, work = 0, process = 0;
    // room: size of the memory that the rank uses (the device's or the host's). needed: bytes that
    // all ranks sharing this memory need (ShareMemory).
    double room = 0, needed = 0;
    HostUse host{};
    double total() const { return static_cast<double>(weights + cache + work + process); }
    // The needed bytes and the size of the memory with the smallest free share.
    std::pair<double, double> tightest() const {
        const bool is_host = host.is_used() && host.needed * room > needed * host.room;
        return is_host ? std::pair(host.needed, host.room) : std::pair(needed, room);
    }
    double lack() const {
        return std::max(0.0, needed - room) + std::max(0.0, host.needed - host.room);
    }
};

class MemoryPlanner {
  public:
    // job: only ctx, kv_tokens, chunk, max_outputs and kv_dtype are used. `walk` must outlive this
    // object.
    MemoryPlanner(const ModelWalk& walk, engine::Job job) : walk_(walk), job_(std::move(job)) {}
    // one_host: all ranks of the layout are on one host. host_ops: if the machine has a host beside
    // its GPUs, the ops that the host computes; with `fill`, also the experts of as few first
    // layers as the rank needs to fit into its GPU, as with --experts auto. on_drive: if the host's
    // memory is too small for these experts of all its ranks, the others stay on the host's drive,
    // as with --weights-on-drive. Errors: those of BuildProgram.
    Result<MemoryUse> Of(const model::Shard& shard, const Machine& machine, bool one_host,
                         const program::HostOps& host_ops = {.fill = true}, bool on_drive = false);

  private:
    // Facts besides the shard on which a rank's memory depends.
    struct Device {
        backend::DescribedDevice described;
        bool one_host;
    };
    // One layer, if the host's processor computes its experts or all of it: the part on the device
    // and the part of the host.
    struct Apart {
        backend::MemoryUse device, host;
    };
    Result<Apart> PlanApart(const model::Shard& part, const Device& device, int threads,
                            bool whole);
    Status PlaceOnHost(const model::Shard& shard, const Machine& machine, const Device& device,
                       const program::HostOps& host_ops, bool on_drive, MemoryUse& use);
    Result<MemoryUse> Plan(const model::Shard& shard, const Device& device);
    Result<backend::MemoryUse> PlanPart(const model::Shard& part, const Device& device);
    Result<backend::MemoryUse> PlanNew(const model::Shard& part, const Device& device) const;

    const ModelWalk& walk_;
    engine::Job job_;
    std::map<std::string, MemoryUse> known_;           // by shard and Device
    std::map<std::string, backend::MemoryUse> parts_;  // plans of parts, likewise
    std::map<std::string, Apart> apart_;               // likewise
};

// Sets `needed` of ranks that share the memory of a host. host_of: index of each rank's host.
void ShareMemory(std::span<MemoryUse> ranks, const ClusterSpec& cluster,
                 std::span<const int> host_of);

// Returns a memory that is too small for its ranks; nullopt: all ranks fit. host_of: index of each
// rank's host.
std::optional<cluster::MemoryLack> FindLack(std::span<const MemoryUse> ranks,
                                            const ClusterSpec& cluster,
                                            std::span<const int> host_of);

// Number of first layers of a stage that represent all its layers. These contain each neighborhood
// (a layer's kind and the kinds before and after it) that occurs in the stage, and at least two
// more layers. The last two kinds of these layers and the parity of their number are the same as in
// the whole stage. kinds: kind of each layer.
int64_t TypicalLayers(std::span<const int> kinds);

}  // namespace weft::plan
