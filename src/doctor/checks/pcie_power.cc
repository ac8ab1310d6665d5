// Detects links that sleep between messages (ASPM).
#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks/checks.h"
#include "doctor/fabric_devices.h"
#include "doctor/pci.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr const char* kPolicy = "sys/module/pcie_aspm/parameters/policy";

// Ranks use another card than this one, as far as is known.
bool IsBesideTheFabric(const PciDevice& card, const std::vector<NetDevice>& fabric) {
    return !fabric.empty() &&
           std::ranges::find(fabric, card.address, &NetDevice::pci) == fabric.end();
}

}  // namespace

void RunPciePower(HostView& view, Findings& out) {
    bool looked = false;
    const std::vector<NetDevice> fabric = FabricDevices(view);
    for (const PciDevice& card : PciDevices(view)) {
        if (!card.IsNetwork() || !card.now.known()) continue;
        looked = true;
        if (!Contains(card.power, "L1")) continue;
        // For other cards drivers enable it by default (r8169, igc).
        const bool matters = card.fabric && !IsBesideTheFabric(card, fabric);
        out.Add(matters ? Severity::kWarn : Severity::kNote,
                fmt::format("{}: ASPM {} enabled", card.Text(), card.power), "ASPM disabled",
                "the link sleeps after some us without traffic and needs 2 to 64 us to wake: that "
                "is in the latency of every message of a token, against 2 us for the message",
                "echo performance | sudo tee /sys/module/pcie_aspm/parameters/policy (kept: "
                "pcie_aspm.policy=performance on the kernel's command line)");
    }
    const std::string policy = view.Text(kPolicy);
    if (Contains(policy, "[powersave]") || Contains(policy, "[powersupersave]")) {
        out.Warn(fmt::format("pcie_aspm policy: {}", policy), "default or performance",
                 "all links of the machine may sleep: 2 to 64 us to wake, for each message",
                 "echo performance | sudo tee /sys/module/pcie_aspm/parameters/policy");
    } else if (looked && out.empty()) {
        out.Ok(fmt::format("no network card's link sleeps{}",
                           policy.empty() ? "" : "; policy " + policy));
    }
}

}  // namespace weft::doctor::checks
