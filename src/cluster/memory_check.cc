#include "cluster/memory_check.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::cluster {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr int64_t kAgreeMs = 600'000;

// Of one memory of one machine, what all ranks need.
struct Sum {
    uint64_t needed = 0, available = 0;
    std::string name, terms;
};

std::string NeedsText(std::span<const MemoryNeed> needs) {
    std::string text;
    for (const MemoryNeed& need : needs) {
        text += fmt::format("{} {} {}\n", need.needed_bytes, need.free_bytes, need.memory);
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
        if (*end == ' ') need.memory = end + 1;
    }
    return needs;
}

}  // namespace

Status CheckMemory(Cluster& cluster, std::span<const MemoryNeed> needs, const std::string& what,
                   const std::string& of, const std::string& advice) {
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster.AllGather("memory", NeedsText(needs), Deadline::In(kAgreeMs)));
    std::map<std::pair<std::string, std::string>, Sum> sums;
    for (int rank = 0; rank < cluster.size(); ++rank) {
        const HostInfo& host = cluster.host(rank);
        for (const MemoryNeed& need : ParseNeeds(all[static_cast<size_t>(rank)])) {
            Sum& sum = sums[{host.boot_id, need.memory}];
            if (sum.name.empty()) {
                sum.name = need.memory.empty() ? fmt::format("the memory of {}", host.name)
                                               : fmt::format("{} of {}", need.memory, host.name);
            }
            if (__builtin_add_overflow(sum.needed, need.needed_bytes, &sum.needed)) {
                sum.needed = UINT64_MAX;
            }
            sum.available = std::max(sum.available, need.free_bytes);
            sum.terms += fmt::format("{}rank {}: {:.0f} MiB", sum.terms.empty() ? "" : " + ", rank,
                                     static_cast<double>(need.needed_bytes) / kMiB);
        }
    }
    for (const auto& [place, sum] : sums) {
        if (sum.available == 0 || sum.needed <= sum.available) continue;
        return MakeError(
            ErrorCode::kOutOfMemory,
            "{} does not fit into {}: {} = {:.0f} MiB ({}), but {:.0f} MiB are free. {}", what,
            sum.name, sum.terms, static_cast<double>(sum.needed) / kMiB, of,
            static_cast<double>(sum.available) / kMiB, advice);
    }
    return {};
}

}  // namespace weft::cluster
