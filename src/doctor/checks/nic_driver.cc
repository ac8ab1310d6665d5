// Driver and firmware of network cards.
#include <fmt/format.h>

#include <array>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/pci.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// The last firmware, or that of the long-term branch, by the first number of its version, which
// stands for the model of the card (release notes of NVIDIA's ConnectX firmware).
struct Known {
    int64_t major;
    const char* card;
    Version good;
};
constexpr std::array<Known, 5> kKnown = {{{2, "ConnectX-3", {{2, 42, 5000}}},
                                          {12, "ConnectX-4", {{12, 28, 2006}}},
                                          {14, "ConnectX-4 Lx", {{14, 32, 1010}}},
                                          {16, "ConnectX-5", {{16, 35, 2000}}},
                                          {20, "ConnectX-6", {{20, 35, 2000}}}}};

bool IsMellanox(const NetDevice& device) {
    return device.driver == "mlx4_en" || device.driver == "mlx4_core" ||
           device.driver == "mlx5_core";
}

void LookAtFirmware(const NetDevice& device, Findings& out) {
    const auto version = ParseVersion(device.firmware);
    const std::string read = fmt::format("{}: driver {}, firmware {}", device.name, device.driver,
                                         device.firmware.empty() ? "not told" : device.firmware);
    if (version && IsMellanox(device)) {
        for (const Known& known : kKnown) {
            if (known.major != version->part[0] || !(*version < known.good)) continue;
            return out.Note(
                read,
                fmt::format("{} {}.{}.{} or newer", known.card, known.good.part[0],
                            known.good.part[1], known.good.part[2]),
                "old firmware of this card lost RoCE v2 settings, negotiated slower links and "
                "hung under load; both ends should have the same",
                "sudo mstflint -d " + (device.pci.empty() ? "CARD" : Quoted(device.pci)) +
                    " query, then the firmware of that PSID from the vendor");
        }
    }
    out.Ok(read);
}

// The module that drives the card.
const char* ModuleOf(const PciDevice& card) {
    const int64_t id = Integer(card.device, 16).value_or(0);
    if (card.vendor == "15b3" || Contains(card.name, "Mellanox")) {
        // ConnectX-3 Pro is 1007; Connect-IB, the first of mlx5, 1011.
        const bool old = (id > 0x1000 && id < 0x1011) || (id >= 0x6340 && id <= 0x6778) ||
                         Contains(card.name, "ConnectX-3") || Contains(card.name, "MT275") ||
                         Contains(card.name, "ConnectX-2") || Contains(card.name, "MT26");
        return old ? "mlx4_core" : "mlx5_core";
    }
    if (Contains(card.name, "E810") || Contains(card.name, "E823")) return "ice";
    if (Contains(card.name, "X710") || Contains(card.name, "X722")) return "i40e";
    if (Contains(card.name, "NetXtreme-E") || Contains(card.name, "BCM57")) return "bnxt_en";
    return "MODULE";
}

void Run(HostView& view, Findings& out) {
    for (const PciDevice& card : PciDevices(view)) {
        if (!card.IsNetwork() || !card.driver.empty()) continue;
        // Only a reading that shows drivers at all can say that one is missing.
        const bool shown = view.Link("sys/bus/pci/devices/" + card.address).found() ||
                           Contains(CommandLike(view, "lspci -vv").text, "Kernel driver in use");
        if (!shown) continue;
        out.Warn(fmt::format("{}: no driver", card.Text()), "a driver in use",
                 "the card is there but the kernel does not use it: no interface, no RDMA",
                 fmt::format("sudo modprobe {0} (what 'lspci -k -s {1}' lists); where it is not "
                             "found, install the kernel's package of further modules (Ubuntu: "
                             "linux-modules-extra, Fedora: kernel-modules-extra)",
                             ModuleOf(card), Quoted(card.address)));
    }
    for (const NetDevice& device : NetDevices(view)) {
        if (device.physical && !device.driver.empty()) LookAtFirmware(device, out);
    }
}

}  // namespace

const Check kNicDriver = {
    .name = "nic-driver",
    .what = "Driver and firmware of network cards.",
    .reads = "/sys/bus/pci/devices, lspci -vv, ethtool -i",
    .why = "Cards without a driver, and firmware years older than what the driver was tested with.",
    .run = Run,
};

}  // namespace weft::doctor::checks
