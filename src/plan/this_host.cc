#include "plan/this_host.h"

#include <algorithm>
#include <utility>

#include "backend/device_list.h"
#include "engine/rank/cache_size.h"
#include "engine/rank/host_ops.h"
#include "engine/rank/rank_options.h"
#include "engine/start/layout_choice.h"
#include "hw/cpu.h"
#include "model/shard.h"
#include "plan/memory.h"
#include "plan/walk.h"

namespace weft::plan {
namespace {

using backend::MemoryKind;

// Memory of the job's ranks on devices of this host.
class Ranks {
  public:
    // host_ops: of the job (engine/rank/host_ops.h).
    Ranks(const engine::Job& job, const model::ShardPlan& plan, const program::HostOps& host_ops,
          const LocalDevices& devices, const MemoryBytes& free)
        : job_(job),
          plan_(plan),
          host_ops_(host_ops),
          devices_(devices),
          here_(devices.size()),
          free_(free) {}

    // The rank's bytes on the device. A GPU that is too small leaves experts to the host if the job
    // allows it; if it is `full`, all experts.
    Result<MemoryUse> Of(MemoryPlanner& planner, size_t rank, const LocalDevice& device,
                         bool full = false) const {
        Machine machine;
        machine.pool = device.pool.kind;
        machine.devices = static_cast<int>(here_);
        machine.threads = job_.threads > 0
                              ? job_.threads
                              : std::max(1, static_cast<int>(AllowedCores().size() / here_));
        machine.memory.value = full ? 0 : FreeOf(device.name);
        program::HostOps host_ops = host_ops_;
        if (devices_[rank].size() > 1 && job_.experts.empty()) host_ops.fill = true;
        if (machine.pool == MemoryKind::kDevice) {
            machine.host.emplace();
            machine.host->threads = machine.threads;
            machine.host->memory.value = FreeOf("");
        }
        return planner.Of(plan_.shards[rank], machine, here_ == plan_.shards.size(), host_ops);
    }

    // Bytes of the host's memory in addition to the device's bytes.
    uint64_t HostBytes(const MemoryUse& use, const LocalDevice& device) const {
        uint64_t bytes =
            static_cast<uint64_t>(use.host.total()) + static_cast<uint64_t>(job_.cache_ram);
        if (device.pool.kind == MemoryKind::kDevice && !use.host.is_used()) {
            const model::Shard& shard = plan_.shards[static_cast<size_t>(use.rank)];
            bytes += engine::kRankBytes +
                     engine::WindowsBytes(shard.layout, shard.rank, here_ == plan_.shards.size());
        }
        return bytes;
    }

    // Adds what the rank needs of each memory.
    void Add(const MemoryUse& use, const LocalDevice& device, MemoryBytes& needs) const {
        needs[MemoryOf(device)] += static_cast<uint64_t>(use.total());
        needs[""] += HostBytes(use, device);
    }

    bool Fits(const MemoryUse& use, const LocalDevice& device) const {
        return use.total() <= FreeOf(MemoryOf(device)) &&
               static_cast<double>(HostBytes(use, device)) <= FreeOf("");
    }

    // The rank's parts of the KV cache, with the minimum size in `least`; `more` has kMore tokens
    // more.
    static constexpr int64_t kMore = 4096;
    Status AddRooms(MemoryPlanner& least, MemoryPlanner& more, int64_t tokens, size_t rank,
                    const LocalDevice& device, std::vector<engine::CacheSpace>& rooms) const {
        WEFT_ASSIGN(const MemoryUse use, Of(least, rank, device, true));
        WEFT_ASSIGN(const MemoryUse larger, Of(more, rank, device, true));
        const auto add = [&](const std::string& memory, uint64_t all, uint64_t cache,
                             uint64_t least_cache) {
            engine::CacheSpace& room = rooms.emplace_back();
            room.memory = memory;
            const auto known = free_.find(memory);
            room.free_bytes = known == free_.end() ? 0 : known->second;
            room.token_bytes = (cache - least_cache) / static_cast<uint64_t>(kMore);
            room.fixed_bytes =
                all - std::min(cache, room.token_bytes * static_cast<uint64_t>(tokens + kMore));
        };
        const std::string memory = MemoryOf(device);
        const auto own = static_cast<uint64_t>(larger.total());
        if (memory.empty()) {
            add("", own + HostBytes(larger, device), larger.cache, use.cache);
            return {};
        }
        add(memory, own, larger.cache, use.cache);
        // (Experts that the device would keep do not count here.)
        const uint64_t experts = host_ops_.fill ? larger.host.weights : 0;
        add("", HostBytes(larger, device) - experts, larger.host.cache, use.host.cache);
        return {};
    }

  private:
    static std::string MemoryOf(const LocalDevice& device) {
        return device.pool.kind == MemoryKind::kHost ? "" : device.name;
    }
    double FreeOf(const std::string& memory) const {
        const auto found = free_.find(memory == "cpu" ? "" : memory);
        return found == free_.end() ? 1e18 : static_cast<double>(found->second);
    }

    const engine::Job& job_;
    const model::ShardPlan& plan_;
    const program::HostOps& host_ops_;
    const LocalDevices& devices_;
    const size_t here_;
    const MemoryBytes& free_;
};

// The device of each rank, as the load chooses it: the first one with memory for the minimum cache.
Result<std::vector<const LocalDevice*>> Choose(const Ranks& all, MemoryPlanner& least, int tp,
                                               const LocalDevices& devices) {
    std::vector<const LocalDevice*> chosen;
    bool moves = false;
    for (size_t rank = 0; rank < devices.size(); ++rank) {
        const std::vector<LocalDevice>& tried = devices[rank];
        const LocalDevice* found = &tried.back();
        for (const LocalDevice& device : tried) {
            if (&device == &tried.back()) break;
            WEFT_ASSIGN(const MemoryUse use, all.Of(least, rank, device));
            if (!all.Fits(use, device)) continue;
            found = &device;
            break;
        }
        moves = moves || (tried.size() > 1 && found == &tried.back());
        chosen.push_back(found);
    }
    // Tensor ranks need devices that are alike.
    for (size_t rank = 0; moves && tp > 1 && rank < devices.size(); ++rank) {
        chosen[rank] = &devices[rank].back();
    }
    return chosen;
}

}  // namespace

Result<LocalDevices> DevicesHere(const engine::Job& job, int ranks, size_t here) {
    LocalDevices devices;
    std::map<std::string, int> used;
    for (int rank = 0; std::cmp_less(rank, here); ++rank) {
        WEFT_ASSIGN(const std::string word, backend::DeviceOfRank(job.device, rank, ranks));
        backend::DeviceOptions options;
        options.local_rank = used[word]++;
        const bool is_auto = word == backend::kAutoDevice;
        const std::vector<std::string> names =
            is_auto ? backend::ChooseAuto(options).names : std::vector{word};
        devices.emplace_back();
        for (const std::string& name : names) {
            LocalDevice& device = devices.back().emplace_back();
            WEFT_ASSIGN(const backend::DeviceInfo info, backend::DescribeDevice(name, options));
            device.name = info.name;
            WEFT_ASSIGN(device.pool, backend::DescribePool(info.name));
        }
    }
    return devices;
}

MemoryBytes FreeBytes(const LocalDevices& devices) {
    MemoryBytes free{{"", AvailableMemoryBytes()}};
    for (const std::vector<LocalDevice>& tried : devices) {
        for (const LocalDevice& device : tried) {
            if (device.pool.kind == MemoryKind::kHost || free.contains(device.name)) continue;
            const auto pool = backend::DescribePool(device.name);
            free[device.name] = pool.ok() ? pool->free_bytes : 0;
        }
    }
    std::erase_if(free, [](const auto& memory) { return memory.second == 0; });
    return free;
}

Result<MemoryBytes> NeedsHere(engine::Job& job, int ranks, const LocalDevices& devices,
                              const MemoryBytes& free) {
    WEFT_ASSIGN(const auto source, model_files::OpenModel(job.model));
    WEFT_ASSIGN(const ModelWalk walk, ModelWalk::Make(*source, job.kv_dtype));
    WEFT_ASSIGN(const model::Layout layout,
                model::MakeLayout(ranks, job.tp, job.pp, job.split, job.ep));
    WEFT_ASSIGN(const model::ShardPlan shards, model::PlanShards(walk.hyper(), *source, layout));
    const int64_t page = program::kLeastPage;
    engine::Job least = job;
    engine::FitCache(least, walk.hyper(), page, 0);
    engine::Job more = least;
    more.kv_tokens += Ranks::kMore;
    MemoryPlanner with_least(walk, least), with_more(walk, more);
    WEFT_ASSIGN(const program::HostOps host_ops, engine::HostOpsOf(job, walk.hyper()));
    const Ranks all(job, shards, host_ops, devices, free);
    WEFT_ASSIGN(const auto chosen, Choose(all, with_least, layout.tp, devices));
    std::vector<engine::CacheSpace> rooms;
    for (size_t rank = 0; rank < chosen.size(); ++rank) {
        WEFT_TRY(
            all.AddRooms(with_least, with_more, least.cache_tokens(), rank, *chosen[rank], rooms));
    }
    engine::FitCache(job, walk.hyper(), page, engine::TokensThatFit(rooms, job.cache_share));
    MemoryPlanner planner(walk, job);
    MemoryBytes needs;
    for (size_t rank = 0; rank < chosen.size(); ++rank) {
        WEFT_ASSIGN(const MemoryUse use, all.Of(planner, rank, *chosen[rank]));
        all.Add(use, *chosen[rank], needs);
    }
    if (job.weights_on_drive) {  // the rest stays on the drive
        const auto host = free.find("");
        const uint64_t most = job.memory > 0 ? static_cast<uint64_t>(job.memory) * devices.size()
                              : host == free.end() ? UINT64_MAX
                                                   : host->second / 10 * 9;
        needs[""] = std::min(needs[""], most);
    }
    return needs;
}

}  // namespace weft::plan
