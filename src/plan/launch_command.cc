#include "plan/launch_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "backend/memory_plan.h"
#include "base/shell_word.h"

namespace weft::plan {
namespace {

constexpr int kWorkerPort = 7000;
constexpr int64_t kUsualChunk = 512;

// Cluster rank numbers of the layout's ranks.
std::vector<int> RanksOf(const ClusterSpec& cluster, const Prediction& layout) {
    std::vector<int> ranks;
    int rank = 0;
    for (int host = 0; host < static_cast<int>(cluster.hosts.size()); ++host) {
        const bool is_used =
            layout.used.empty() || std::ranges::find(layout.used, host) != layout.used.end();
        for (int device = 0; device < cluster.hosts[static_cast<size_t>(host)].devices; ++device) {
            if (is_used) ranks.push_back(rank);
            ++rank;
        }
    }
    ranks.resize(static_cast<size_t>(layout.layout.size()));
    return ranks;
}

// One listening worker per rank except the first, each with its own port on its host.
std::vector<std::string> MadeUpWorkers(const ClusterSpec& cluster, const std::vector<int>& ranks) {
    std::vector<std::string> workers;
    for (size_t i = 1; i < ranks.size(); ++i) {
        const Place place = cluster.PlaceOf(ranks[i]);
        workers.push_back(fmt::format("host{}:{}", place.host + 1, kWorkerPort + place.device));
    }
    return workers;
}

// The workers that the user named: one per rank of the cluster, or one per rank of the layout.
std::vector<std::string> WorkersOf(const RunRequest& request, const ClusterSpec& cluster,
                                   const std::vector<int>& ranks) {
    const std::vector<std::string>& named = request.workers;
    if (named.size() + 1 == ranks.size()) return named;
    if (static_cast<int>(named.size()) + 1 != cluster.ranks()) return MadeUpWorkers(cluster, ranks);
    std::vector<std::string> workers;
    for (size_t i = 1; i < ranks.size(); ++i) {
        workers.push_back(named[static_cast<size_t>(ranks[i] - 1)]);
    }
    return workers;
}

std::string DevicesOf(const ClusterSpec& cluster, int ranks) {
    std::vector<std::string> names;
    for (int rank = 0; rank < ranks; ++rank) {
        const Machine& machine = cluster.machine_of(rank);
        // AMD's Instinct cards have no Vulkan driver (docs/gpu.md).
        const bool hip = machine.family == "cdna";
        names.emplace_back(hip ? "hip" : backend::NameOf(machine.pool));
    }
    const bool alike = std::set(names.begin(), names.end()).size() == 1;
    return alike ? names[0] : fmt::format("{}", fmt::join(names, ","));
}

// The machines' devices are of different kinds. (For measured machines this is unknown.)
bool AreUnlike(const Machine& a, const Machine& b) {
    const bool host = a.pool == backend::MemoryKind::kHost;
    if (host || b.pool == backend::MemoryKind::kHost) return a.pool != b.pool;
    return !a.measured && !b.measured && a.kind != b.kind;
}

std::string SplitOf(const model::Layout& layout) {
    std::vector<double> shares = layout.tp_shares;
    const bool one_list = shares.empty() && layout.tp > 1;
    // With tp entries, Weft would read a list of stage shares as tensor shares.
    if (one_list && !layout.pp_shares.empty()) shares.assign(static_cast<size_t>(layout.tp), 1);
    if (layout.pp > 1 || layout.tp == 1) {
        shares.insert(shares.end(), layout.pp_shares.begin(), layout.pp_shares.end());
    }
    return fmt::format("{:g}", fmt::join(shares, ","));
}

// cluster: only the hosts that the layout uses.
bool HasUnlikeTensorRanks(const ClusterSpec& cluster, const model::Layout& layout) {
    if (layout.tp == 1 || cluster.alike()) return false;
    for (int rank = 0; rank < layout.size(); ++rank) {
        const Machine& first = cluster.machine_of(rank / layout.tp * layout.tp);
        if (AreUnlike(first, cluster.machine_of(rank))) return true;
    }
    return false;
}

ClusterSpec UsedPart(const ClusterSpec& cluster, const Prediction& layout) {
    return layout.used.empty() ? cluster : cluster.Part(layout.used);
}

}  // namespace

bool SkipsSelfTest(const ClusterSpec& whole, const Prediction& layout) {
    return HasUnlikeTensorRanks(UsedPart(whole, layout), layout.layout);
}

std::string LaunchHost(const RunRequest& request, const ClusterSpec& cluster,
                       const Prediction& layout) {
    const int rank = RanksOf(cluster, layout).front(), host = cluster.host_of(rank);
    if (host == 0) return "";
    const std::vector<std::string>& named = request.workers;
    if (static_cast<int>(named.size()) + 1 != cluster.ranks())
        return fmt::format("host{}", host + 1);
    return named[static_cast<size_t>(rank - 1)];
}

std::string LaunchCommand(const RunRequest& request, const ClusterSpec& whole,
                          const Prediction& layout, const Workload& load) {
    const ClusterSpec cluster = UsedPart(whole, layout);
    const model::Layout& cut = layout.layout;
    const int ranks = cut.size();
    const engine::Job job = load.AsJob(DType::kF16);
    const bool serves = load.batch > 1 || request.lora.size() > 1;
    std::string words =
        fmt::format("weft {} {}", serves ? "serve" : "run", ShellWord(request.model));
    const auto add = [&](const char* flag, const auto& value) {
        words += fmt::format(" {} {}", flag, value);
    };
    const int hosts = cluster.host_of(ranks - 1) + 1;
    if (request.pull) words += " --pull";
    const HostUse* host = layout.UseOfHost();
    const bool on_drive = host != nullptr && host->on_drive > 0;
    // (Experts on the drive need the model on each host: 'weft pull' there.)
    if (request.pull && hosts > 1 && !on_drive) add("--weights-from", 0);
    if (hosts > 1 || !request.workers.empty()) {
        const auto workers = WorkersOf(request, whole, RanksOf(whole, layout));
        if (!workers.empty()) add("--hosts", ShellWord(fmt::format("{}", fmt::join(workers, ","))));
        add("--key-file", "weft.key");
    } else if (ranks > 1) {
        add("--local", ranks);
    }
    if (ranks > 1) {
        add("--tp", cut.tp);
        add("--pp", cut.pp);
    }
    if (cut.ep > 1) add("--ep", cut.ep);
    if (const std::string split = SplitOf(cut); !split.empty()) add("--tensor-split", split);
    if (const std::string devices = DevicesOf(cluster, ranks); devices != "cpu") {
        add("--device", devices);
    }
    if (host != nullptr) add("--experts", on_drive ? "cpu --weights-on-drive" : "auto");
    add("--ctx", load.longest());
    if (serves) {
        add("--max-seqs", load.batch);
        add("--kv-tokens", job.kv_tokens);
    }
    if (job.chunk != kUsualChunk) add("--prefill-chunk", job.chunk);
    if (request.kv != "f16") add("--kv-dtype", request.kv);
    for (const std::string& adapter : request.lora) {
        const size_t name = serves ? 0 : adapter.find('=') + 1;
        add("--lora", ShellWord(adapter.substr(name)));
    }
    if (!request.draft.empty()) {
        add("--draft", ShellWord(request.draft));
        add("--draft-tokens", load.draft.tokens);
    }
    if (HasUnlikeTensorRanks(cluster, cut)) words += " --skip-self-test";
    return words;
}

}  // namespace weft::plan
