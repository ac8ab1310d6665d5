// Checks network cards: driver, firmware, speed, interrupts, and the distance to GPUs.
#include "doctor/checks/checks.h"
#include "doctor/fabric_devices.h"

namespace weft::doctor::checks {
namespace {

// ---- nic-driver: drivers and firmware.

// Latest firmware, or latest of the long-term branch, by the first number of the version, which
// identifies the card model (release notes of NVIDIA's ConnectX firmware).
struct KnownFirmware {
    const char* card;
    Version good;
};
constexpr std::array<KnownFirmware, 5> kKnownFirmware = {{{"ConnectX-3", {{2, 42, 5000}}},
                                                          {"ConnectX-4", {{12, 28, 2006}}},
                                                          {"ConnectX-4 Lx", {{14, 32, 1010}}},
                                                          {"ConnectX-5", {{16, 35, 2000}}},
                                                          {"ConnectX-6", {{20, 35, 2000}}}}};

void CheckFirmware(HostView& view, const NetDevice& device, Findings& out) {
    const auto version = ParseVersion(device.firmware);
    const bool mellanox =
        device.driver == "mlx4_en" || device.driver == "mlx4_core" || device.driver == "mlx5_core";
    const std::string firmware = device.firmware.empty() ? "unknown" : device.firmware;
    for (const auto& [card, good] : kKnownFirmware) {
        if (!version || !mellanox || good.part[0] != version->part[0] || *version >= good) continue;
        return Report<found::kNicFirmwareOld>(
            view, out, device.name, device.driver, firmware, card,
            fmt::format("{}", fmt::join(good.part, ".")),
            device.pci.empty() ? "query the card with mstflint"
                               : "sudo mstflint -d " + ShellWord(device.pci) + " query");
    }
    ReportOk(out, "{}: driver {}, firmware {}", device.name, device.driver, firmware);
}

// Ids or parts of the name by which a driver's card is known. The first row that fits counts.
struct CardModule {
    std::string_view vendor;
    int64_t first, last;     // device ids
    std::string_view names;  // parts of lspci's name, separated by commas
    std::string_view module;
};
constexpr CardModule kCardModules[] = {
    // ConnectX-3 Pro is 1007. Connect-IB, the first card of mlx5, is 1011.
    {"15b3", 0x1001, 0x1010, "ConnectX-3,MT275,ConnectX-2,MT26", "mlx4_core"},
    {"15b3", 0x6340, 0x6778, "", "mlx4_core"},
    {"15b3", 0, 0xffff, "Mellanox", "mlx5_core"},
    {"8086", 0x1591, 0x159b, "E810,E823", "ice"},
    {"8086", 0x188a, 0x1894, "", "ice"},
    {"8086", 0x1572, 0x158b, "X710,X722", "i40e"},
    {"8086", 0x37cc, 0x37d3, "", "i40e"},
    // Broadcom's cards from 10 Gb/s on; its 1 Gb/s cards (16xx below 16c0) belong to tg3.
    {"14e4", 0x16c0, 0x16f1, "NetXtreme-E,BCM57", "bnxt_en"},
    {"14e4", 0x1750, 0x1807, "", "bnxt_en"},
    {"14e4", 0xd802, 0xffff, "", "bnxt_en"},
    {"17db", 0, 0xffff, "", "cxi_ss1"},
    {"1dd8", 0, 0xffff, "", "ionic"},
    {"1425", 0, 0xffff, "", "cxgb4"},
    {"1d6a", 0, 0xffff, "", "atlantic"},
    {"10ec", 0, 0xffff, "", "r8169"},
    {"8086", 0x15f2, 0x15f3, "I225,I226", "igc"},
    {"8086", 0x125b, 0x125d, "", "igc"},
};

// The module that drives the card; "": unknown.
std::string_view ModuleOf(const PciDevice& card) {
    const int64_t id = Integer(card.device, 16).value_or(0);
    for (const CardModule& row : kCardModules) {
        if (card.vendor == row.vendor && id >= row.first && id <= row.last) return row.module;
        const bool named = std::ranges::any_of(Split(row.names, ','), [&](std::string_view part) {
            return !part.empty() && Contains(card.name, part);
        });
        if (named) return row.module;
    }
    return {};
}

std::string DriverFix(HostView& view, const PciDevice& card) {
    if (const std::string newer = NewerKernelFor(view, card); !newer.empty()) return newer;
    const std::string lspci = "'lspci -k -s " + ShellWord(card.address) + "'";
    const std::string_view module = ModuleOf(card);
    if (module == "mlx4_core") {
        if (std::string none = Cure(view, "mlx4-driver"); !none.empty()) return none;
    }
    return (module.empty() ? "load the module that " + lspci + " lists with sudo modprobe"
                           : fmt::format("sudo modprobe {} ({} lists it)", module, lspci)) +
           Cure(view, "more-modules");
}

// ---- nic-speed: negotiated Ethernet speeds.

// Cards, by PCI id, all of whose ports reach this speed. For hosts without ethtool's output.
struct PortSpeed {
    std::string_view vendor, device;
    double megabits;
};
constexpr std::array<PortSpeed, 6> kPortSpeeds = {{{"8086", "1592", 100000},    // E810-C for QSFP
                                                   {"15b3", "1013", 100000},    // ConnectX-4
                                                   {"15b3", "1019", 100000},    // ConnectX-5 Ex
                                                   {"15b3", "101b", 100000},    // ConnectX-6
                                                   {"15b3", "1021", 100000},    // ConnectX-7
                                                   {"14e4", "1760", 200000}}};  // Thor 2

double MaxSpeedOf(const NetDevice& device, const std::vector<PciDevice>& cards) {
    if (device.most_megabits > 0) return device.most_megabits;
    const PciDevice* card = FindPci(cards, device.pci);
    if (card == nullptr || card->is_virtual) return 0;
    const auto known = std::ranges::find_if(kPortSpeeds, [&](const PortSpeed& one) {
        return one.vendor == card->vendor && one.device == card->device;
    });
    return known == kPortSpeeds.end() ? 0 : known->megabits;
}

// One of four lanes: 25 Gb/s on a 100 Gb/s port, 10 on a 40 Gb/s port.
bool LostLanes(double megabits, double most) {
    if (most < 40000 || megabits >= 100000) return false;
    return megabits * 4 <= most || megabits == 25000 || (megabits == 50000 && most == 100000);
}

void AskSpeedCost(HostView& view, const NetDevice& device, double megabits, Findings& out) {
    AskLinkCost(view, out, PortLink(device),
                [&](HostLink&, HostLink& expected) { expected.gigabits = megabits / 1000; });
}

void CheckLanes(HostView& view, const NetDevice& device, const std::vector<NetDevice>& all,
                const std::vector<NetDevice>& fabric, double most, Findings& out) {
    const bool sibling = std::ranges::any_of(all, [&](const NetDevice& one) {
        return one.up && one.name != device.name && one.pci.size() == 12 &&
               one.pci.substr(0, 10) == device.pci.substr(0, 10) && one.megabits > device.megabits;
    });
    const bool fault = LostLanes(device.megabits, most) && IsForRanks(device, fabric) && !sibling;
    ReportAs<found::kNicLanes>(fault ? Severity::kWarn : Severity::kNote, view, out, device.name,
                               device.SpeedText(), most / 1000, device.megabits / 8000, most / 8000,
                               ShellWord(device.name));
    AskSpeedCost(view, device, most, out);
}

// The kernel's USB port of an adapter, "2-1.4"; "": not on USB.
std::string UsbPort(HostView& view, const NetDevice& device) {
    if (!IsUsbDriver(device.driver)) return {};
    // A USB adapter's bus address is its interface, "2-1.4:1.0".
    if (!device.pci.empty() && device.pci[0] < ':' && Contains(device.pci, "-")) {
        return device.pci.substr(0, device.pci.find(':'));
    }
    const Reading info = view.Command("ethtool -i " + device.name);
    const std::string bus(After(info.text, "bus-info: usb-"));
    const size_t dash = bus.rfind('-');
    return dash == bus.npos ? std::string() : bus.substr(dash);
}

// Warns about an adapter for 1 Gb/s or more on a 480 Mb/s port.
bool CheckUsb(HostView& view, const NetDevice& device, Severity severity, Findings& out) {
    const std::string port = UsbPort(view, device);
    if (port.empty() || device.megabits < 1000) return false;
    bool slow = false;
    std::string attached;
    for (const LogLine& line : KernelLogLines(KernelLog(view))) {
        if (!Contains(line.lower, "usb ") || !Contains(line.lower, port + ":")) continue;
        if (!Contains(line.lower, "usb device number")) continue;
        slow = Contains(line.lower, " high-speed usb device");
        attached = line.raw;
    }
    if (!slow) return false;
    ReportAs<found::kNicUsb2>(severity, view, out, device.name, device.SpeedText(), attached,
                              device.megabits / 8);
    return true;
}

// Reports a card that the hypervisor emulates.
bool CheckEmulated(HostView& view, const NetDevice& device, Severity severity, Findings& out) {
    constexpr std::array<std::string_view, 5> kDrivers = {"e1000", "8139cp", "8139too", "pcnet32",
                                                          "ne2k-pci"};
    if (!IsIn(kDrivers, device.driver) || !IsVirtualMachine(view)) return false;
    ReportAs<found::kNicEmulated>(severity, view, out, device.name, device.driver);
    return true;
}

void CheckSpeed(HostView& view, const NetDevice& device, bool for_ranks, Findings& out) {
    const Severity severity = for_ranks ? Severity::kWarn : Severity::kNote;
    if (CheckUsb(view, device, severity, out) || CheckEmulated(view, device, severity, out)) return;
    if (device.wireless) return Report<found::kNicWireless>(view, out, device.name);
    const std::string read = fmt::format("{}: {}{}", device.name, device.SpeedText(),
                                         device.duplex.empty() ? "" : ", duplex " + device.duplex);
    const std::string name = ShellWord(device.name);
    const bool slow = device.megabits > 0 && device.megabits < 1000;
    const bool half = device.duplex == "half";
    // The port of the management controller, or a port without an address.
    const bool unused = device.addressed && device.addresses.empty();
    const bool management = device.driver.starts_with("cdc_") || device.driver == "rndis_host";
    if (!for_ranks && (unused || management) && (slow || half)) {
        Report<found::kNicSlowUnused>(view, out, read, name);
    } else if (half) {
        Report<found::kNicHalfDuplex>(view, out, read, name);
    } else if (slow) {
        Report<found::kNicSlow>(view, out, read, name, 1000 / device.megabits);
        AskSpeedCost(view, device, 1000, out);
    } else if (device.megabits > 0) {
        out.Ok(read);
    }
}

// ---- nic-gpu: distance of network card and GPU on machines with several memory nodes.

// From a GPU's row of `nvidia-smi topo -m`, "GPU0  X  SYS  SYS  0-31  0": its nearest card.
enum class Distance { kUnknown, kNear, kFar };

Distance NearestCard(std::string_view row, const std::vector<size_t>& cards) {
    const auto words = Words(row);
    Distance nearest = Distance::kUnknown;
    for (size_t card : cards) {
        if (card + 1 >= words.size()) continue;
        const std::string_view link = words[card + 1];
        if (link == "PIX" || link == "PXB" || link == "PHB" || link == "NODE") {
            return Distance::kNear;
        }
        if (link == "SYS") nearest = Distance::kFar;
    }
    return nearest;
}

// True if the table lists GPUs and cards.
bool CheckTopology(HostView& view, Findings& out) {
    const Reading table = view.Command("nvidia-smi topo -m");
    if (!table.found()) return false;
    std::vector<size_t> cards;  // columns
    size_t far = 0, all = 0;
    for (std::string_view line : Lines(table.text)) {
        const auto words = Words(line);
        if (words.empty() || Trim(line).starts_with("Legend")) continue;
        if (words[0] == "GPU0" && words.size() > 1 &&
            (words[1] == "GPU1" || words[1] == "NIC0" || words[1].starts_with("mlx"))) {
            for (size_t i = 0; i < words.size(); ++i) {
                if (words[i].starts_with("NIC") || words[i].starts_with("mlx")) cards.push_back(i);
            }
        } else if (words[0].starts_with("GPU") && !cards.empty()) {
            const Distance distance = NearestCard(line, cards);
            all += distance != Distance::kUnknown;
            far += distance == Distance::kFar;
        }
    }
    if (all == 0) return false;
    if (far == 0) {
        out.Ok("each GPU has a network card beside it");
    } else {
        ReportAs<found::kGpuFarTable>(far == all ? Severity::kWarn : Severity::kNote, view, out,
                                      far, all);
    }
    return true;
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
        if (card.last && card.modules.empty()) continue;  // its last lines name driver and modules
        // A card with an interface has a driver, even if none was read.
        const std::string folder = "sys/bus/pci/devices/" + card.address;
        if (!view.List(folder + "/net").empty() || !view.List(folder + "/infiniband").empty()) {
            continue;
        }
        if ((drivers && !card.name.empty()) || view.Link(folder).found()) {
            Report<found::kNicNoDriver>(view, out, card.Text(), DriverFix(view, card));
        }
    }
    for (const NetDevice& device : NetDevices(view)) {
        if (device.physical && !device.driver.empty()) CheckFirmware(view, device, out);
    }
}

void RunNicSpeed(HostView& view, Findings& out) {
    const std::vector<NetDevice> all = NetDevices(view), fabric = FabricDevices(view);
    const std::vector<PciDevice> cards = PciDevices(view);
    for (const NetDevice& device : all) {
        if (!device.physical || !device.up) continue;
        const double most = MaxSpeedOf(device, cards);
        const bool ethernet = view.Text("sys/class/net/" + device.name + "/type") != "32";
        if (ethernet && !device.wireless && device.megabits > 0 && most >= 40000 &&
            device.megabits * 2 <= most) {
            CheckLanes(view, device, all, fabric, most, out);
        } else {
            CheckSpeed(view, device, IsForRanks(device, fabric), out);
        }
    }
}

// ---- nic-coalescing: delay of a card's interrupts.

void RunNicCoalescing(HostView& view, Findings& out) {
    constexpr double kMaxDelayUs = 20;
    for (const NetDevice& device : NetDevices(view)) {
        if (!device.physical || !device.up || device.wireless) continue;
        const Reading settings = view.Command("ethtool -c " + device.name);
        if (!settings.found()) continue;
        const auto delay_us = NumberAfter(settings.text, "\nrx-usecs:");
        if (!delay_us) continue;
        const bool adaptive = After(settings.text, "Adaptive RX:").starts_with("on");
        const bool fine = *delay_us <= kMaxDelayUs || adaptive;
        ReportAs<found::kNicCoalescing>(fine ? Severity::kOk : Severity::kNote, view, out,
                                        device.name, *delay_us, adaptive ? ", adaptive" : "",
                                        kMaxDelayUs, ShellWord(device.name));
        if (fine) continue;
        AskLinkCost(view, out, PortLink(device),
                    [&](HostLink& actual, HostLink&) { actual.waits_s = *delay_us * 1e-6; });
    }
}

void RunNicGpu(HostView& view, Findings& out) {
    constexpr double kFastGigabits = 20;
    if (CheckTopology(view, out)) return;
    std::vector<PciDevice> gpus, cards;
    for (PciDevice& device : PciDevices(view)) {
        if (device.node < 0 || device.lost || device.is_virtual) continue;
        if (device.IsComputeGpu()) gpus.push_back(device);
        const bool fast = device.fabric || device.port_gigabits >= kFastGigabits;
        if (device.IsNetwork() && fast) cards.push_back(device);
    }
    if (gpus.empty() || cards.empty()) return;
    std::vector<std::string> far, places;
    for (const PciDevice& gpu : gpus) {
        if (std::ranges::find(cards, gpu.node, &PciDevice::node) != cards.end()) continue;
        far.push_back(fmt::format("{} (node {})", gpu.Text(), gpu.node));
    }
    if (far.empty()) return out.Ok("each GPU has a network card on its memory node");
    for (const PciDevice& card : cards) {
        places.push_back(fmt::format("{} on node {}", card.Text(), card.node));
    }
    ReportAs<found::kGpuFarNode>(far.size() == gpus.size() ? Severity::kWarn : Severity::kNote,
                                 view, out, ListText(places), Joined(far));
}

}  // namespace weft::doctor::checks
