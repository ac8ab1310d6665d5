#include "cluster/worker/memory_check.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/worker/link_windows.h"
#include "net/fabric.h"

namespace weft::cluster {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr int64_t kAgreeMs = 600'000;

// Needs of all ranks for one memory of one machine.
struct Sum {
    uint64_t needed = 0, available = 0, claimed = 0;
    std::string_view claimants{};
};

std::string NeedsText(std::span<const MemoryNeed> needs) {
    std::string text;
    for (const MemoryNeed& need : needs) {
        text += fmt::format("{} {} {} {}\t{}\n", need.needed_bytes, need.free_bytes,
                            need.claimed_bytes, need.memory, need.claimants);
    }
    return text;
}

std::vector<MemoryNeed> ParseNeeds(std::string_view text) {
    std::vector<MemoryNeed> needs;
    while (!text.empty()) {
        const std::string line(text.substr(0, text.find('\n')));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        char* end = nullptr;
        MemoryNeed& need = needs.emplace_back();
        need.needed_bytes = std::strtoull(line.c_str(), &end, 10);
        need.free_bytes = std::strtoull(end, &end, 10);
        need.claimed_bytes = std::strtoull(end, &end, 10);
        const std::string rest = *end == ' ' ? end + 1 : "";
        need.memory = rest.substr(0, rest.find('\t'));
        if (need.memory.size() < rest.size()) need.claimants = rest.substr(need.memory.size() + 1);
    }
    return needs;
}

const MemoryNeed* NeedOf(const RankNeeds& rank, const std::string& memory) {
    const auto found = std::ranges::find(rank.needs, memory, &MemoryNeed::memory);
    return found == rank.needs.end() ? nullptr : &*found;
}

// "rank 0: 12 MiB + rank 1: 13 MiB"
std::string TermsText(const MemoryLack& lack, std::span<const RankNeeds> ranks) {
    std::string text;
    for (const int rank : lack.ranks) {
        const MemoryNeed* need = NeedOf(ranks[static_cast<size_t>(rank)], lack.memory);
        text += fmt::format("{}rank {}: {:.0f} MiB", text.empty() ? "" : " + ", rank,
                            static_cast<double>(need->needed_bytes) / kMiB);
    }
    return text;
}

}  // namespace

std::optional<MemoryLack> FindLack(std::span<const RankNeeds> ranks) {
    std::map<std::pair<int, std::string_view>, Sum> sums;
    for (const RankNeeds& rank : ranks) {
        for (const MemoryNeed& need : rank.needs) {
            Sum& sum = sums[{rank.machine, need.memory}];
            if (__builtin_add_overflow(sum.needed, need.needed_bytes, &sum.needed)) {
                sum.needed = UINT64_MAX;
            }
            sum.available = std::max(sum.available, need.free_bytes);
            if (need.claimed_bytes <= sum.claimed) continue;
            sum.claimed = need.claimed_bytes;
            sum.claimants = need.claimants;
        }
    }
    for (const auto& [place, sum] : sums) {
        const uint64_t claimed = std::min(sum.claimed, sum.available);
        if (sum.available == 0 || sum.needed <= sum.available - claimed) continue;
        MemoryLack lack{place.first, std::string(place.second), sum.needed, sum.available, {}};
        lack.claimed_bytes = claimed;
        lack.claimants = sum.claimants;
        for (size_t rank = 0; rank < ranks.size(); ++rank) {
            const bool here = ranks[rank].machine == lack.machine;
            if (here && NeedOf(ranks[rank], lack.memory) != nullptr) {
                lack.ranks.push_back(static_cast<int>(rank));
            }
        }
        return lack;
    }
    return std::nullopt;
}

uint64_t MemoryOf(std::span<const HostInfo> hosts) {
    struct Kernel {
        std::map<std::string, uint64_t> groups;  // ""; ranks without a group
        uint64_t total = 0;
    };
    std::map<std::string, Kernel> kernels;
    for (const HostInfo& host : hosts) {
        Kernel& kernel = kernels[host.boot_id];
        uint64_t& bytes = kernel.groups[host.memory_group];
        bytes = std::max(bytes, host.memory_bytes);
        kernel.total = std::max(kernel.total, host.total_bytes);
    }
    uint64_t all = 0;
    for (auto& [boot_id, kernel] : kernels) {
        const uint64_t whole = kernel.groups[""];
        uint64_t parts = 0;
        for (const auto& [group, bytes] : kernel.groups) parts += group.empty() ? 0 : bytes;
        if (kernel.total > 0) parts = std::min(parts, kernel.total);
        all += std::max(whole, parts);
    }
    return all;
}

uint64_t WindowsBytes(Cluster& cluster) {
    uint64_t bytes = 0;
    for (const auto& link : cluster.fabric().links) {
        if (link == nullptr || link->peer().transport == "verbs") continue;
        bytes += link->window_bytes();
    }
    return bytes;
}

uint64_t WindowsBytes(int links, int most, int local) {
    return static_cast<uint64_t>(links) * WindowBytesOf(most, local);
}

size_t WindowBytesOf(int most, int local) {
    constexpr size_t kOfRank = size_t{512} << 20, kOfMachine = size_t{4} << 30;
    constexpr size_t kLeastBytes = size_t{128} << 10;
    const size_t all = std::min(kOfRank, kOfMachine / static_cast<size_t>(local));
    return std::clamp(all / static_cast<size_t>(most + 1) / 4096 * 4096, kLeastBytes,
                      net::FabricOptions().window_bytes);
}

Status CheckMemory(Cluster& cluster, std::span<const MemoryNeed> needs, const std::string& what,
                   const std::string& of, const std::string& advice) {
    std::vector<MemoryNeed> own(needs.begin(), needs.end());
    WEFT_TRY(cluster.claims().Claim(own));
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster.AllGather("memory", NeedsText(own), Deadline::In(kAgreeMs)));
    std::map<std::string, int> machines;
    for (int rank = 0; rank < cluster.size(); ++rank) {
        machines.emplace(cluster.host(rank).boot_id, 0);
    }
    int count = 0;
    for (auto& [boot_id, number] : machines) number = count++;
    std::vector<RankNeeds> ranks;
    for (int rank = 0; rank < cluster.size(); ++rank) {
        ranks.push_back(
            {machines.at(cluster.host(rank).boot_id), ParseNeeds(all[static_cast<size_t>(rank)])});
    }
    const std::optional<MemoryLack> lack = FindLack(ranks);
    if (!lack) return {};
    cluster.claims().Release();
    const std::string claims =
        lack->claimed_bytes == 0
            ? ""
            : fmt::format(", of which other jobs of its worker have claimed {:.0f} MiB ({})",
                          static_cast<double>(lack->claimed_bytes) / kMiB, lack->claimants);
    const std::string& host = cluster.host(lack->ranks[0]).name;
    const std::string place = lack->memory.empty() ? fmt::format("the memory of {}", host)
                                                   : fmt::format("{} of {}", lack->memory, host);
    return MakeError(ErrorCode::kOutOfMemory,
                     "{} does not fit into {}: {} = {:.0f} MiB ({}), but {:.0f} MiB are free{}. {}",
                     what, place, TermsText(*lack, ranks),
                     static_cast<double>(lack->needed_bytes) / kMiB, of,
                     static_cast<double>(lack->free_bytes) / kMiB, claims, advice);
}

}  // namespace weft::cluster
