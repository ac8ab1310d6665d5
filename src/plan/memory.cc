#include "plan/memory.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "backend/memory_plan.h"
#include "engine/rank/device_options.h"
#include "engine/rank/rank_options.h"
#include "engine/start/layout_choice.h"
#include "model/adapters.h"
#include "model/builder.h"
#include "program/placement.h"
#include "program/program.h"

namespace weft::plan {
namespace {

// An arena's plan repeats after this many layers.
constexpr int64_t kMoreLayers = 2;

// Bytes of the memory that the rank uses, which other ranks may share.
double SpaceOf(const Machine& machine) {
    return machine.memory.value * (machine.shares_memory() ? machine.devices : 1);
}

// Memory for a weight type that no kernel of Weft reads (an approximate type of plan/names.h).
// Weights keep the file's layout.
backend::MemoryUse PlainMemory(const program::Program& list,
                               const backend::CompileOptions& options) {
    backend::MemoryUse use;
    const int64_t positions = options.kv_pages * options.page_tokens;
    for (const program::Value& value : list.values) {
        if (value.storage == program::Storage::kWeight) {
            use.weight_bytes +=
                static_cast<uint64_t>(RowBytes(value.dtype, value.shape.Elements(0, 0)));
        } else if (value.storage == program::Storage::kState) {
            use.kv_bytes += static_cast<uint64_t>(program::StateBytes(value, positions));
        }
    }
    use.arena_bytes = static_cast<uint64_t>(
        program::PlanArena(list, options.max_tokens, options.max_outputs, options.keep).size_bytes);
    return use;
}

// All GPUs are planned alike. one_host: the parts of steps that overlap with sums depend on it.
std::string KeyOf(const ModelWalk& walk, const model::Shard& s,
                  const backend::DescribedDevice& device, bool one_host) {
    const bool host = device.kind == backend::MemoryKind::kHost;
    return fmt::format("{}/{}/{}/{}{}{}{}/{}", host ? device.threads : 0, one_host,
                       fmt::join(SizesOf(walk.hyper(), s), ","), s.rank == 0, s.first_stage(),
                       s.last_stage(), s.tensor_rank == 0, fmt::join(walk.KindsOf(s.layers), ","));
}

}  // namespace

int64_t TypicalLayers(std::span<const int> kinds) {
    const auto all = static_cast<int64_t>(kinds.size());
    const auto kind = [&](int64_t layer) {
        return layer < 0 ? -1 : kinds[static_cast<size_t>(layer)];
    };
    using Neighbours = std::tuple<int, int, int>;
    const auto around = [&](int64_t layer) {
        return Neighbours(kind(layer - 1), kind(layer), kind(layer + 1));
    };
    std::set<Neighbours> missing;
    for (int64_t layer = 0; layer + 1 < all; ++layer) missing.insert(around(layer));
    int64_t met = 0;  // number of first layers that contain all neighborhoods
    for (int64_t some = 1; some < all; ++some) {
        if (some >= 2) missing.erase(around(some - 2));
        if (missing.empty() && met == 0) met = some;
        const bool same_end = some >= 2 && kind(some - 1) == kind(all - 1) &&
                              kind(some - 2) == kind(all - 2) && (all - some) % 2 == 0;
        if (met > 0 && some >= met + kMoreLayers && same_end) return some;
    }
    return all;
}

Result<backend::MemoryUse> MemoryPlanner::PlanPart(const model::Shard& part, const Device& device) {
    const std::string key = KeyOf(walk_, part, device.described, device.one_host);
    auto found = parts_.find(key);
    if (found == parts_.end()) {
        WEFT_ASSIGN(const backend::MemoryUse use, PlanNew(part, device));
        found = parts_.emplace(key, use).first;
    }
    return found->second;
}

Result<backend::MemoryUse> MemoryPlanner::PlanNew(const model::Shard& part,
                                                  const Device& device) const {
    const program::Target target = backend::TargetOf(device.described);
    const model::Layout& layout = part.layout;
    const auto build = engine::BuildOptionsOf(job_, layout, target);
    WEFT_ASSIGN(program::Program list,
                model::BuildProgram(walk_.hyper(), part, walk_.source(), build));
    WEFT_TRY(model::AddAdapters(list, walk_.source()));
    const auto compile = engine::CompileOptionsOf(job_, layout, list, target, device.one_host);
    const auto planned = backend::PlanMemory({list}, compile, device.described);
    const bool unknown = !planned.ok() && planned.error().code == ErrorCode::kUnsupported;
    return unknown ? PlainMemory(list, compile) : planned;
}

Result<MemoryPlanner::Apart> MemoryPlanner::PlanApart(const model::Shard& part,
                                                      const Device& device, int threads,
                                                      bool whole) {
    const std::string key = KeyOf(walk_, part, device.described, device.one_host) +
                            fmt::format("/{}/{}", threads, whole);
    if (const auto found = apart_.find(key); found != apart_.end()) return found->second;
    const program::Target target = backend::TargetOf(device.described);
    const auto build = engine::BuildOptionsOf(job_, part.layout, target);
    WEFT_ASSIGN(program::Program list,
                model::BuildProgram(walk_.hyper(), part, walk_.source(), build));
    WEFT_TRY(model::AddAdapters(list, walk_.source()));
    auto compile = engine::CompileOptionsOf(job_, part.layout, list, target, device.one_host);
    program::HostOps host_ops;
    (whole ? host_ops.layers : host_ops.expert_layers) = program::HostOps::kAllLayers;
    const std::vector<bool> on_host = program::ChooseHostOps(list, host_ops);
    Apart apart;
    if (std::ranges::find(on_host, true) != on_host.end()) {
        WEFT_ASSIGN(const program::PlacedProgram placed,
                    program::PlaceOps(list, on_host, compile.keep));
        compile.keep.clear();
        const auto plan = [&](const program::Program& side,
                              const backend::DescribedDevice& its) -> backend::MemoryUse {
            const auto planned = backend::PlanMemory({side}, compile, its);
            return planned.ok() ? *planned : PlainMemory(side, compile);
        };
        apart.device = plan(placed.device, device.described);
        apart.host = plan(placed.host, {backend::MemoryKind::kHost, threads, false});
    }
    return apart_.emplace(key, apart).first->second;
}

// With a drive, as many experts stay in the host's memory as fit beside all else; each rank gets an
// equal part of it.
Status MemoryPlanner::PlaceOnHost(const model::Shard& shard, const Machine& machine,
                                  const Device& device, const program::HostOps& host_ops,
                                  bool on_drive, MemoryUse& use) {
    const HostPart& host = *machine.host;
    const int ranks = std::min(machine.devices, shard.layout.size());
    const int threads = std::max(1, host.threads / ranks);
    for (int64_t layer = shard.layers.begin; layer < shard.layers.end; ++layer) {
        const model::Shard part = PartOf(shard, 1, {layer, layer + 1});
        const bool whole = layer < host_ops.layers;
        WEFT_ASSIGN(const Apart apart, PlanApart(part, device, threads, whole));
        if (apart.host.weight_bytes == 0) continue;
        WEFT_ASSIGN(const backend::MemoryUse all, PlanPart(part, device));
        ++use.host.of_layers;
        const bool fills = host_ops.fill && use.total() > use.room;
        if (!whole && layer >= host_ops.expert_layers && !fills) continue;
        use.weights -= all.weight_bytes - apart.device.weight_bytes;
        if (walk_.hyper().KvLayer(layer) == layer) {
            use.cache -= all.kv_bytes - apart.device.kv_bytes;
            use.host.cache += apart.host.kv_bytes;
        }
        ++use.host.layers;
        use.host.end = layer + 1;
        ++use.host.kinds[walk_.kind_of_layer()[static_cast<size_t>(layer)]];
        use.host.weights += apart.host.weight_bytes;
        const uint64_t process =
            engine::kRankBytes + engine::WindowsBytes(shard.layout, shard.rank, device.one_host);
        use.host.work = std::max(use.host.work, apart.host.arena_bytes + process);
    }
    use.host.room = host.memory.value;
    const double room = use.host.room / ranks;
    if (!on_drive || !host.drive || use.host.total() <= room) return {};
    const auto weights = static_cast<double>(use.host.weights);
    const double kept = std::max(0.0, room - static_cast<double>(use.host.work));
    use.host.on_drive = std::max(0.0, 1 - kept / weights);
    return {};
}

Result<MemoryUse> MemoryPlanner::Plan(const model::Shard& shard, const Device& device) {
    const std::span<const int> kinds = walk_.KindsOf(shard.layers);
    const int64_t typical = TypicalLayers(kinds);
    model::Shard part = shard;
    part.layers.end = part.layers.begin + typical;
    WEFT_ASSIGN(const backend::MemoryUse few, PlanPart(part, device));
    MemoryUse use{0, few.weight_bytes, few.kv_bytes, few.arena_bytes, 0, 0};
    std::map<int, backend::MemoryUse> of_kind;
    for (size_t layer = static_cast<size_t>(typical); layer < kinds.size(); ++layer) {
        const int64_t at = shard.layers.begin + static_cast<int64_t>(layer);
        const auto [one, is_new] = of_kind.try_emplace(kinds[layer]);
        if (is_new) {
            WEFT_ASSIGN(one->second, PlanPart(PartOf(shard, 1, {at, at + 1}), device));
        }
        use.weights += one->second.weight_bytes;
        // A part of one layer always plans a cache of its own; in the whole stage, the layer may
        // share an earlier layer's cache.
        if (walk_.hyper().KvLayer(at) == at) use.cache += one->second.kv_bytes;
    }
    return use;
}

Result<MemoryUse> MemoryPlanner::Of(const model::Shard& shard, const Machine& machine,
                                    bool one_host, const program::HostOps& host_ops,
                                    bool on_drive) {
    const Device device = {{machine.pool, machine.threads, false}, one_host};
    const std::string key = KeyOf(walk_, shard, device.described, one_host);
    auto found = known_.find(key);
    if (found == known_.end()) {
        WEFT_ASSIGN(const MemoryUse use, Plan(shard, device));
        found = known_.emplace(key, use).first;
    }
    MemoryUse use = found->second;
    const uint64_t process =
        engine::kRankBytes + engine::WindowsBytes(shard.layout, shard.rank, one_host);
    use.process = machine.shares_memory() ? process : 0;
    use.rank = shard.rank;
    use.room = SpaceOf(machine);
    const bool fills = host_ops.fill && walk_.hyper().moe.experts > 0 && use.total() > use.room;
    if (machine.host && (host_ops.expert_layers > 0 || host_ops.layers > 0 || fills)) {
        WEFT_TRY(PlaceOnHost(shard, machine, device, host_ops, on_drive, use));
    }
    use.host.needed = use.host.total();
    use.needed = use.total();
    return use;
}

void ShareMemory(std::span<MemoryUse> ranks, const ClusterSpec& cluster,
                 std::span<const int> host_of) {
    std::map<int, double> needed, on_host;  // by host
    const auto host = [&](const MemoryUse& use) { return host_of[static_cast<size_t>(use.rank)]; };
    for (const MemoryUse& use : ranks) {
        needed[host(use)] += use.total();
        on_host[host(use)] += use.host.total();
    }
    for (MemoryUse& use : ranks) {
        const Machine& machine = cluster.hosts[static_cast<size_t>(host(use))];
        use.needed = machine.shares_memory() ? needed[host(use)] : use.total();
        use.host.needed = on_host[host(use)];
    }
}

std::optional<cluster::MemoryLack> FindLack(std::span<const MemoryUse> ranks,
                                            const ClusterSpec& cluster,
                                            std::span<const int> host_of) {
    std::vector<cluster::RankNeeds> needs;
    for (const MemoryUse& use : ranks) {
        const int host = host_of[static_cast<size_t>(use.rank)];
        const Machine& machine = cluster.hosts[static_cast<size_t>(host)];
        const auto bytes = static_cast<uint64_t>(SpaceOf(machine));
        const std::string device = machine.shares_memory() ? "" : fmt::format("rank {}", use.rank);
        needs.push_back(
            {host, engine::MemoryNeeds({machine.pool, bytes, bytes, 0}, device,
                                       use.weights + use.cache + use.work,
                                       use.process + static_cast<uint64_t>(use.host.total()),
                                       static_cast<uint64_t>(use.host.room))});
    }
    return cluster::FindLack(needs);
}

}  // namespace weft::plan
