// Runs the checks of the table.
#include "doctor/checks/checks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/nearest_word.h"
#include "doctor/check.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"

namespace weft::doctor {
namespace {

#define HOST_CHECK(function, ...) {__VA_ARGS__, &checks::function},
#define ACROSS_CHECK(function, ...) {__VA_ARGS__, nullptr, &checks::function},
#define PEERS_CHECK(function, ...) {__VA_ARGS__, nullptr, &checks::function, true},
#define RANKS_CHECK(...) {__VA_ARGS__},
constexpr Check kChecks[] = {
#include "doctor/checks/checks.inc"
};
#undef HOST_CHECK
#undef ACROSS_CHECK
#undef PEERS_CHECK
#undef RANKS_CHECK

// A setting of the machine, which a container can't fully see or change.
bool IsOfMachine(std::string_view check) {
    return IsOneOf(check,
                   "reboot-pending memlock-login memlock-systemd swap cpu-governor huge-pages "
                   "numa-balancing power-limits memory-taken clock-sync iommu pcie-power "
                   "kernel-parameters gpu-firmware "
                   "memory-speed tcp-settings nic-driver rdma-device");
}

// Lowers the severity of findings that only the container's host can fix.
void ExcuseContainer(HostView& view, Finding& finding) {
    if (finding.severity <= Severity::kNote || !IsOfMachine(finding.check)) return;
    if (!HasTag(view, "container")) return;
    finding.severity = Severity::kNote;
    finding.why += "; this is a container: the setting is that of its host";
}

std::string AllNames(Hosts hosts) {
    std::string names;
    for (const auto& host : hosts) names += (names.empty() ? "" : ", ") + host->host();
    return names;
}

// Lists the first findings of each severity and counts the others in one more, because a check of
// all pairs of many hosts has thousands.
std::vector<Finding> Condensed(std::vector<Finding> findings) {
    constexpr size_t kMostListed = 64;
    std::map<Severity, size_t> seen;
    std::map<Severity, Finding> last;
    std::vector<Finding> listed;
    for (Finding& finding : findings) {
        if (seen[finding.severity]++ < kMostListed) {
            listed.push_back(std::move(finding));
        } else {
            last[finding.severity] = std::move(finding);
        }
    }
    for (auto& [severity, finding] : last) {
        finding.read = fmt::format("{} more, {} in all; the last: {}", seen[severity] - kMostListed,
                                   seen[severity], finding.read);
        listed.push_back(std::move(finding));
    }
    return listed;
}

}  // namespace

std::span<const Check> AllChecks() {
    return kChecks;
}

Status CheckNames(std::string_view flag, std::span<const std::string> names) {
    std::vector<std::string> known;
    for (const Check& check : kChecks) known.emplace_back(check.name);
    for (const std::string& name : names) {
        if (std::ranges::find(known, name) != known.end()) continue;
        return MakeError(ErrorCode::kUsage,
                         "{} {}: no such check.{} 'weft doctor --list' explains them all: {}", flag,
                         name, DidYouMean(name, known), fmt::join(known, ", "));
    }
    return {};
}

Result<std::vector<Finding>> RunChecks(Hosts all_hosts, std::span<const std::string> only,
                                       size_t peers) {
    const Hosts hosts = all_hosts.first(all_hosts.size() - peers);
    WEFT_TRY(CheckNames("--check", only));
    const auto wanted = [&](const Check& check) {
        return only.empty() || std::ranges::find(only, check.name) != only.end();
    };
    std::vector<Finding> all;
    const auto take = [&](const Check& check, const std::string& host, Findings& out) {
        if (!only.empty() && out.empty()) {
            out.Note(fmt::format("nothing that this check looks at on {}", host), check.reads,
                     "it has nothing to say here");
        }
        std::ranges::move(Condensed(out.Take()), std::back_inserter(all));
    };
    for (size_t i = 0; i < hosts.size(); ++i) {
        HostView& view = *hosts[i];
        const size_t before = all.size();
        for (const Check& check : kChecks) {
            if (check.run == nullptr || !wanted(check)) continue;
            Findings out(check.name, view.host(), &view);
            check.run(view, out);
            take(check, view.host(), out);
        }
        for (Finding& finding : std::span(all).subspan(before)) {
            finding.fix = ForHost(view, std::move(finding.fix), hosts.size() > 1 ? i + 1 : 0);
            ExcuseContainer(view, finding);
        }
    }
    for (const Check& check : kChecks) {
        if (check.across == nullptr || !wanted(check)) continue;
        const Hosts part = check.with_peers ? all_hosts : hosts;
        Findings out(check.name, AllNames(part), part.empty() ? nullptr : part[0].get());
        if (part.size() > 1) check.across(part, out);
        take(check, AllNames(part), out);
    }
    return all;
}

std::string ChecksPage() {
    std::string page = "## The checks\n";
    for (const Check& check : kChecks) {
        page += fmt::format("\n### {}\n\n{}{}\n\n- reads: {}\n- why: {}\n", check.name, check.what,
                            check.across == nullptr ? "" : " Needs two hosts or more.", check.reads,
                            check.why);
    }
    return page;
}

}  // namespace weft::doctor
