#include "train/rank_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/device_list.h"
#include "base/log.h"
#include "engine/rank/device_options.h"
#include "train/state.h"

namespace weft::train {
namespace {

// The first GPU that opens, or the reason why no GPU opens.
Result<std::shared_ptr<backend::Device>> OpenGpu(const backend::DeviceOptions& options) {
    const backend::AutoChoice choice = backend::ChooseAuto(options);
    std::string why = choice.left_out;
    for (const std::string& name : choice.names) {
        if (name == backend::kDefaultDevice) continue;
        auto device = backend::OpenDevice(name, options);
        if (device.ok()) return device;
        why = device.error().message;
    }
    return MakeError(ErrorCode::kNotFound, "{}", why);
}

// The GPUs of all ranks, as exchanged by all ranks.
struct GpuCensus {
    bool all = true;      // each rank has one
    std::string why_not;  // why ranks lack one; "": no host has any
};

Result<GpuCensus> CountGpus(const Result<std::shared_ptr<backend::Device>>& gpu,
                            cluster::Cluster& cluster) {
    const std::string mine = gpu.ok() ? "+" : gpu.error().message;
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster.AllGather("GPU", mine, Deadline::In(kAgreeMs)));
    const bool any = std::ranges::count(all, "+") > 0;
    GpuCensus census;
    for (size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank] == "+") continue;
        census.all = false;
        if (!census.why_not.empty() || (!any && all[rank].empty())) continue;
        const std::string& why = all[rank].empty() ? "its host has no GPU" : all[rank];
        census.why_not = all.size() == 1 ? why : fmt::format("rank {}: {}", rank, why);
    }
    return census;
}

// all: by rank, the device on which it trains.
Status CheckGroup(const TrainLayout& layout, int zero, const std::vector<std::string>& all,
                  int rank) {
    const std::string& mine = all[static_cast<size_t>(rank)];
    std::vector<int> group = layout.TensorGroup();
    if (zero == 0) {
        const std::vector<int> replicas = layout.DataGroup();
        group.insert(group.end(), replicas.begin(), replicas.end());
    }
    const auto other = std::ranges::find_if(
        group, [&](int peer) { return all[static_cast<size_t>(peer)] != mine; });
    if (other == group.end()) return {};
    const auto [first, second] = std::minmax({rank, *other});
    return MakeError(ErrorCode::kUsage,
                     "rank {} trains on {}, rank {} on {}: tensor ranks, and replicas without "
                     "ZeRO, need devices that give the same bits. Use --pp between these ranks, "
                     "--zero 1 or more between replicas, or one --device for all",
                     first, all[static_cast<size_t>(first)], second,
                     all[static_cast<size_t>(second)]);
}

}  // namespace

Status ChooseDevice(const DeviceChoice& choice, cluster::Cluster& cluster,
                    const PlanOnDevice& plan) {
    backend::DeviceOptions options =
        engine::DeviceOptionsOf(cluster, choice.threads, choice.reference);
    WEFT_ASSIGN(std::string name,
                backend::DeviceOfRank(choice.name, cluster.rank(), cluster.size()));
    if (choice.name == backend::kAutoDevice) {
        options.local_rank = engine::LocalRankOf(cluster, name);
        auto gpu = OpenGpu(options);
        WEFT_ASSIGN(GpuCensus census, CountGpus(gpu, cluster));
        if (census.all) {
            const std::string taken = gpu->get()->info().name;
            const Status planned = plan(std::move(gpu).value(), true);
            if (planned.ok() || planned.error().code == ErrorCode::kUsage ||
                planned.error().code == ErrorCode::kCancelled) {
                return planned;
            }
            census.why_not = fmt::format("{}: {}", taken, planned.error().message);
        }
        if (!census.why_not.empty()) {
            Log(LogLevel::kWarning, "--device auto trains on the processor: {}", census.why_not);
        }
        name = backend::kDefaultDevice;
    }
    WEFT_ASSIGN(std::shared_ptr<backend::Device> device, backend::OpenDevice(name, options));
    return plan(std::move(device), false);
}

Status CheckAlike(const TrainLayout& layout, int zero, const backend::DeviceInfo& info,
                  bool may_fail, cluster::Cluster& cluster) {
    const std::string mine = info.uses_host_cores ? info.backend : info.identity;
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster.AllGather("device", mine, Deadline::In(kAgreeMs)));
    const Status own = CheckGroup(layout, zero, all, cluster.rank());
    if (!may_fail) return own;
    WEFT_ASSIGN(const std::vector<std::string> said,
                cluster.AllGather("unlike devices", own.ok() ? "" : own.error().message,
                                  Deadline::In(kAgreeMs)));
    const auto first = std::ranges::find_if(said, [](const auto& text) { return !text.empty(); });
    if (first == said.end()) return {};
    return MakeError(ErrorCode::kUnsupported, "{}", *first);
}

}  // namespace weft::train
