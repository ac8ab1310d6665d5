// Checks drivers and firmware of network cards.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/pci.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// Latest firmware, or latest of the long-term branch, by the first number of the version, which
// identifies the card model (release notes of NVIDIA's ConnectX firmware).
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
                (device.pci.empty() ? "mstflint's query of the card"
                                    : "sudo mstflint -d " + ShellWord(device.pci) + " query") +
                    ", then the firmware of that PSID from the vendor");
        }
    }
    out.Ok(read);
}

// The module that drives the card; "": unknown.
std::string_view ModuleOf(const PciDevice& card) {
    const int64_t id = Integer(card.device, 16).value_or(0);
    if (card.vendor == "15b3" || Contains(card.name, "Mellanox")) {
        // ConnectX-3 Pro is 1007. Connect-IB, the first card of mlx5, is 1011.
        const bool old = (id > 0x1000 && id < 0x1011) || (id >= 0x6340 && id <= 0x6778) ||
                         Contains(card.name, "ConnectX-3") || Contains(card.name, "MT275") ||
                         Contains(card.name, "ConnectX-2") || Contains(card.name, "MT26");
        return old ? "mlx4_core" : "mlx5_core";
    }
    const bool intel = card.vendor == "8086";
    const bool e810 = (id >= 0x1591 && id <= 0x159b) || (id >= 0x188a && id <= 0x1894);
    if ((intel && e810) || Contains(card.name, "E810") || Contains(card.name, "E823")) return "ice";
    const bool x710 = (id >= 0x1572 && id <= 0x158b) || (id >= 0x37cc && id <= 0x37d3);
    if ((intel && x710) || Contains(card.name, "X710") || Contains(card.name, "X722")) {
        return "i40e";
    }
    // Broadcom's 14e4 has cards from 10 Gb/s on; its 1 Gb/s cards (16xx below 16c0) belong to tg3.
    const bool broadcom = card.vendor == "14e4" && ((id >= 0x16c0 && id <= 0x16f1) ||
                                                    (id >= 0x1750 && id <= 0x1807) || id >= 0xd802);
    if (broadcom || Contains(card.name, "NetXtreme-E") || Contains(card.name, "BCM57")) {
        return "bnxt_en";
    }
    constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kByVendor = {
        {{"17db", "cxi_ss1"},
         {"1dd8", "ionic"},
         {"1425", "cxgb4"},
         {"1d6a", "atlantic"},
         {"10ec", "r8169"}}};
    for (const auto& [vendor, module] : kByVendor) {
        if (card.vendor == vendor) return module;
    }
    const bool i225 = (id >= 0x15f2 && id <= 0x15f3) || (id >= 0x125b && id <= 0x125d);
    return (intel && i225) || Contains(card.name, "I225") || Contains(card.name, "I226") ? "igc"
                                                                                         : "";
}

// The way to give the card a driver.
std::string DriverFix(HostView& view, const PciDevice& card) {
    if (const std::string newer = NewerKernelFor(view, card); !newer.empty()) return newer;
    const std::string look = "'lspci -k -s " + ShellWord(card.address) + "'";
    const std::string_view module = ModuleOf(card);
    const std::string load = module.empty()
                                 ? "load the module that " + look + " lists with sudo modprobe"
                                 : fmt::format("sudo modprobe {} (what {} lists)", module, look);
    return load + Cure(view, "more-modules");
}

}  // namespace

void RunNicDriver(HostView& view, Findings& out) {
    const std::vector<PciDevice> cards = PciDevices(view);
    // Drivers are missing only if the reading shows drivers at all.
    const bool drivers =
        std::ranges::any_of(cards, [](const auto& one) { return !one.driver.empty(); });
    for (const PciDevice& card : cards) {
        if (!card.IsNetwork() || !card.driver.empty() || card.lost) continue;
        if (card.is_virtual || card.cut) continue;
        // A card with an interface has a driver, even if none was read.
        const std::string folder = "sys/bus/pci/devices/" + card.address;
        if (!view.List(folder + "/net").empty() || !view.List(folder + "/infiniband").empty()) {
            continue;
        }
        const bool shown = (drivers && !card.name.empty()) || view.Link(folder).found();
        if (!shown) continue;
        out.Warn(fmt::format("{}: no driver", card.Text()), "a driver in use",
                 "the card is there but the kernel does not use it: no interface, no RDMA",
                 DriverFix(view, card));
    }
    for (const NetDevice& device : NetDevices(view)) {
        if (device.physical && !device.driver.empty()) LookAtFirmware(device, out);
    }
}

}  // namespace weft::doctor::checks
