// Checks bonds of several links under RDMA and TCP.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/rdma.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// Names in /proc/net/bonding (drivers/net/bonding/bond_main.c) and in sysfs.
struct Mode {
    std::string_view name, words;
    bool roce;  // drivers merge the cards' RDMA devices in this mode
};
constexpr std::array<Mode, 7> kModes = {{{"balance-rr", "load balancing (round-robin)", false},
                                         {"active-backup", "fault-tolerance (active-backup)", true},
                                         {"balance-xor", "load balancing (xor)", true},
                                         {"broadcast", "fault-tolerance (broadcast)", false},
                                         {"802.3ad", "IEEE 802.3ad Dynamic link aggregation", true},
                                         {"balance-tlb", "transmit load balancing", false},
                                         {"balance-alb", "adaptive load balancing", false}}};

const Mode* ModeOfBond(HostView& view, const std::string& bond) {
    const std::string sysfs = view.Text("sys/class/net/" + bond + "/bonding/mode");
    const std::string proc = view.Text("proc/net/bonding/" + bond);
    const std::string_view told = After(proc, "Bonding Mode:");
    for (const Mode& mode : kModes) {
        const auto words = Words(sysfs);
        if (!words.empty() && words[0] == mode.name) return &mode;
        if (told.starts_with(mode.words)) return &mode;
    }
    return nullptr;
}

std::vector<std::string> PartsOf(HostView& view, const std::string& bond) {
    std::vector<std::string> parts;
    const std::string slaves = view.Text("sys/class/net/" + bond + "/bonding/slaves");
    for (std::string_view name : Words(slaves)) parts.emplace_back(name);
    const std::string proc = view.Text("proc/net/bonding/" + bond);
    for (std::string_view line : Lines(proc)) {
        if (line.starts_with("Slave Interface:")) parts.emplace_back(After(line, "Interface:"));
    }
    return parts;
}

// RDMA devices belong to the bond or to one of its parts.
bool CarriesRdma(HostView& view, const std::string& bond, const std::vector<std::string>& parts) {
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!port.ethernet() || port.software()) continue;
        for (const std::string& name : RdmaInterfaces(view, port)) {
            if (name == bond || std::ranges::find(parts, name) != parts.end()) return true;
        }
    }
    const std::vector<NetDevice> devices = NetDevices(view);
    const bool any = !RdmaPorts(view).empty();
    return any && std::ranges::any_of(parts, [&](const std::string& name) {
               const NetDevice* device = FindNetDevice(devices, name);
               return device != nullptr && device->driver.starts_with("mlx");
           });
}

void LookAtBond(HostView& view, const std::string& bond, Findings& out) {
    const Mode* mode = ModeOfBond(view, bond);
    if (mode == nullptr) return;
    const std::vector<std::string> parts = PartsOf(view, bond);
    const std::string read = fmt::format("{}: mode {} of {}", bond, mode->name, Joined(parts));
    const std::string fix = fmt::format(
        "mode 802.3ad (with LACP on the switch) or active-backup, where {0} is configured: nmcli "
        "connection modify {0} bond.options mode=active-backup, or 'mode: active-backup' in "
        "netplan or the unit; between two hosts without a switch an address on each link in place "
        "of a bond",
        ShellWord(bond));
    if (!mode->roce && CarriesRdma(view, bond, parts)) {
        return out.Warn(read, "802.3ad, active-backup or balance-xor",
                        "cards join their RDMA devices in these modes only: in others RDMA is lost "
                        "when a link fails, or bound to one of the links",
                        fix);
    }
    if (mode->name == "balance-rr") {
        return out.Note(read, "802.3ad, active-backup or balance-xor",
                        "packets of one connection go by turns over the links and arrive out of "
                        "order: TCP sends some of them again",
                        fix);
    }
    out.Ok(read);
}

}  // namespace

void RunBondMode(HostView& view, Findings& out) {
    std::vector<std::string> bonds = view.List("proc/net/bonding");
    for (const std::string& name : view.List("sys/class/net")) {
        if (view.Has("sys/class/net/" + name + "/bonding") &&
            std::ranges::find(bonds, name) == bonds.end()) {
            bonds.push_back(name);
        }
    }
    for (const std::string& bond : bonds) LookAtBond(view, bond, out);
}

}  // namespace weft::doctor::checks
