// Detects cards that have disappeared or did not come up.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/kernel_log.h"
#include "doctor/pci.h"
#include "doctor/rdma.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr const char* kBack =
    "power the machine off and on, not only boot (a card on Oculink or in a box of its own before "
    "the machine); reseat the card, its riser, cable and power plug; another slot tells whether it "
    "is the card";

// A driver that is only loaded for a card.
struct CardDriver {
    std::string_view module, vendor;
    const char* card;
};
constexpr std::array<CardDriver, 6> kCardDrivers = {{{"mlx4_core", "15b3", "ConnectX-3"},
                                                     {"mlx5_core", "15b3", "ConnectX"},
                                                     {"ice", "8086", "E810"},
                                                     {"bnxt_en", "14e4", "Broadcom NetXtreme-E"},
                                                     {"ionic", "1dd8", "Pensando"},
                                                     {"cxgb4", "1425", "Chelsio"}}};

bool HasModule(HostView& view, std::string_view module) {
    if (view.Has("sys/module/" + std::string(module))) return true;
    const Reading list = view.Command("lsmod");
    return list.found() && std::ranges::any_of(Lines(list.text), [&](std::string_view line) {
               const auto words = Words(line);
               return words.size() >= 2 && words[0] == module && LeadingNumber(words[1]);
           });
}

void LookAtLost(const std::vector<PciDevice>& devices, Findings& out) {
    for (const PciDevice& card : devices) {
        if (!card.lost) continue;
        const bool ours = card.IsNetwork() || card.IsGpu() || card.type == 0 || card.fabric;
        if (!ours) continue;
        out.Fail(fmt::format("{}: its registers read as ones", card.Text()), "a card on the bus",
                 "the card has left the PCIe bus: nothing reaches it until the machine is booted",
                 kBack);
    }
}

// Reports slots with a card whose link did not come up.
void LookAtSlots(const std::vector<PciDevice>& devices, Findings& out) {
    for (const PciDevice& port : devices) {
        if (!port.IsBridge() || !port.slot_filled || port.link_active || port.now.known()) continue;
        const bool used = std::ranges::any_of(devices, [&](const PciDevice& one) {
            return !one.bridges.empty() && one.bridges.front() == port.address;
        });
        if (used) continue;
        out.Warn(fmt::format("{}: a card is in its slot, but the link is down", port.Text()),
                 "a link to the card", "the card is absent: no driver, no interface", kBack);
    }
}

// Reports a driver's card that the log names and that is no longer listed.
void LookAtLog(HostView& view, const std::vector<PciDevice>& devices, Findings& out) {
    std::vector<std::string> told;
    for (const LogLine& line : KernelLogLines(KernelLog(view))) {
        const std::string_view driver = NetworkDriverIn(line.known);
        const std::string address(PciAddressIn(line.known));
        if (driver.empty() || address.empty() || FindPci(devices, address) != nullptr) continue;
        const bool card = std::ranges::any_of(
            kCardDrivers, [&](const CardDriver& one) { return one.module == driver; });
        if (!card || std::ranges::find(told, address) != told.end()) continue;
        told.push_back(address);
        out.Warn(
            fmt::format("{} {} is in the kernel's log, but no longer on the bus", driver, address),
            "the card that was there at boot",
            "the card went away while the machine ran: no interface, no RDMA", kBack);
    }
}

}  // namespace

void RunPcieAbsent(HostView& view, Findings& out) {
    const std::vector<PciDevice> devices = PciDevices(view);
    LookAtLost(devices, out);
    LookAtSlots(devices, out);
    if (!KnowsAllPci(view)) return;
    LookAtLog(view, devices, out);
    if (!out.empty()) return;
    for (const CardDriver& driver : kCardDrivers) {
        const bool there = std::ranges::any_of(devices, [&](const PciDevice& one) {
            return one.vendor == driver.vendor || one.driver == driver.module || one.fabric;
        });
        if (there || !RdmaPorts(view).empty() || !HasModule(view, driver.module)) continue;
        out.Warn(fmt::format("the driver {} is loaded, but no {} is on the bus", driver.module,
                             driver.card),
                 "the driver's card", "the card is absent after boot: no interface, no RDMA",
                 kBack);
        return;
    }
    if (!devices.empty()) out.Ok(fmt::format("{} devices, none lost", devices.size()));
}

}  // namespace weft::doctor::checks
