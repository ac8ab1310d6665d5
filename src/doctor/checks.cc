// Runs the checks of the table.
#include "doctor/checks/checks.h"

#include <algorithm>

#include "doctor/check.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"

namespace weft::doctor {
namespace {

#define HOST_CHECK(function, ...) {__VA_ARGS__, &checks::function},
#define ACROSS_CHECK(function, ...) {__VA_ARGS__, nullptr, &checks::function},
#define PEERS_CHECK(function, ...) {__VA_ARGS__, nullptr, &checks::function, true},
#define RANKS_CHECK(...) {__VA_ARGS__},

const std::vector<Check>& Table() {
    static const std::vector<Check> table = {
#include "doctor/checks/checks.inc"
    };
    return table;
}

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

// number: position among several hosts, from 1; 0: the only host.
void Append(std::vector<Finding>& all, Findings& some, HostView* view = nullptr,
            size_t number = 0) {
    for (Finding& finding : some.Take()) {
        if (view != nullptr) finding.fix = ForHost(*view, std::move(finding.fix), number);
        if (view != nullptr) ExcuseContainer(*view, finding);
        all.push_back(std::move(finding));
    }
}

std::string AllNames(Hosts hosts) {
    std::string names;
    for (const auto& host : hosts) names += (names.empty() ? "" : ", ") + host->host();
    return names;
}

}  // namespace

std::span<const Check> AllChecks() {
    return Table();
}

Result<std::vector<Finding>> RunChecks(Hosts all_hosts, std::span<const std::string> only,
                                       size_t peers) {
    const Hosts hosts = all_hosts.first(all_hosts.size() - peers);
    for (const std::string& name : only) {
        if (std::ranges::none_of(Table(), [&](const Check& check) { return name == check.name; })) {
            return MakeError(ErrorCode::kUsage,
                             "--check {}: no such check. 'weft doctor --list' explains them all",
                             name);
        }
    }
    const auto wanted = [&](const Check& check) {
        return only.empty() || std::ranges::find(only, check.name) != only.end();
    };
    std::vector<Finding> all;
    const auto say_nothing = [&](const Check& check, const std::string& host, Findings& out) {
        if (only.empty() || !out.empty()) return;
        out.Note(fmt::format("nothing that this check looks at on {}", host), check.reads,
                 "it has nothing to say here");
    };
    for (size_t i = 0; i < hosts.size(); ++i) {
        const auto& host = hosts[i];
        for (const Check& check : Table()) {
            if (check.run == nullptr || !wanted(check)) continue;
            Findings out(check.name, host->host());
            check.run(*host, out);
            say_nothing(check, host->host(), out);
            Append(all, out, host.get(), hosts.size() > 1 ? i + 1 : 0);
        }
    }
    for (const Check& check : Table()) {
        if (check.across == nullptr || !wanted(check)) continue;
        const Hosts part = check.with_peers ? all_hosts : hosts;
        Findings out(check.name, AllNames(part));
        if (part.size() > 1) check.across(part, out);
        say_nothing(check, AllNames(part), out);
        Append(all, out);
    }
    return all;
}

}  // namespace weft::doctor
