// The table of all checks, and running them.
#include "doctor/checks/checks.h"

#include <algorithm>
#include <array>

#include "doctor/check.h"
#include "doctor/remediation.h"

namespace weft::doctor {
namespace {

constexpr std::array kChecks = {
    &checks::kPcieLink,
    &checks::kPcieUpstream,
    &checks::kPciePower,
    &checks::kPcieErrors,
    &checks::kPcieAbsent,
    &checks::kNicGpu,
    &checks::kNicDriver,
    &checks::kNicLog,
    &checks::kHeat,
    &checks::kNicSpeed,
    &checks::kNicCoalescing,
    &checks::kBondMode,
    &checks::kRebootPending,
    &checks::kRdmaDevice,
    &checks::kRdmaPort,
    &checks::kRdmaGid,
    &checks::kRdmaAccess,
    &checks::kRdmaMtu,
    &checks::kRdmaLeaks,
    &checks::kRdmaLibrary,
    &checks::kRoceFlowControl,
    &checks::kIbSubnetManager,
    &checks::kIbIpoib,
    &checks::kIbManagerLog,
    &checks::kMemlock,
    &checks::kMemlockLogin,
    &checks::kMemlockSystemd,
    &checks::kGpuAccess,
    &checks::kGpuKernel,
    &checks::kGpuRocm,
    &checks::kGpuFirmware,
    &checks::kGpuMemory,
    &checks::kGpuVulkan,
    &checks::kKernelParameters,
    &checks::kKernelLog,
    &checks::kIommu,
    &checks::kCpuGovernor,
    &checks::kNumaBalancing,
    &checks::kHugePages,
    &checks::kSwap,
    &checks::kCgroupLimits,
    &checks::kMemorySpeed,
    &checks::kNetSubnet,
    &checks::kTcpSettings,
    &checks::kFirewall,
    &checks::kClockSync,
    &checks::kThunderbolt,
    &checks::kMeasured,
    &checks::kNicCounters,
    &checks::kRdmaCounters,
    &checks::kTcpRetransmits,
    &checks::kCpuThrottling,
    &checks::kAcrossRoute,
    &checks::kAcrossAddress,
    &checks::kAcrossMtu,
    &checks::kAcrossPath,
    &checks::kAcrossPorts,
    &checks::kAcrossFec,
    &checks::kAcrossCards,
    &checks::kAcrossClock,
    &checks::kAcrossKernel,
    &checks::kIbOneManager,
    &checks::kAcrossMeasured,
};

const std::vector<Check>& Table() {
    static const std::vector<Check> table = [] {
        std::vector<Check> all;
        for (const Check* check : kChecks) all.push_back(*check);
        return all;
    }();
    return table;
}

void Append(std::vector<Finding>& all, Findings& some, HostView* view = nullptr) {
    for (Finding& finding : some.Take()) {
        if (view != nullptr) finding.fix = ForHost(*view, finding.fix);
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

Result<std::vector<Finding>> RunChecks(Hosts hosts, std::span<const std::string> only) {
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
    for (const auto& host : hosts) {
        for (const Check& check : Table()) {
            if (check.run == nullptr || !wanted(check)) continue;
            Findings out(check.name, host->host());
            check.run(*host, out);
            say_nothing(check, host->host(), out);
            Append(all, out, host.get());
        }
    }
    for (const Check& check : Table()) {
        if (check.across == nullptr || !wanted(check)) continue;
        Findings out(check.name, AllNames(hosts));
        if (hosts.size() > 1) check.across(hosts, out);
        say_nothing(check, AllNames(hosts), out);
        Append(all, out);
    }
    return all;
}

}  // namespace weft::doctor
