// Checks network cards: driver, firmware, speed, interrupts, and the distance to GPUs.
#include "doctor/checks/checks.h"

namespace weft::doctor::checks {
namespace {

// ---- nic-driver: drivers and firmware.

// Latest firmware, or latest of the long-term branch. The first number of a version identifies the
// card model (release notes of NVIDIA's ConnectX firmware).
struct KnownFirmware {
    const char* card;
    Version good;
};
constexpr KnownFirmware kKnownFirmware[] = {{"ConnectX-3", {{2, 42, 5000}}},
                                            {"ConnectX-4", {{12, 28, 2006}}},
                                            {"ConnectX-4 Lx", {{14, 32, 1010}}},
                                            {"ConnectX-5", {{16, 35, 2000}}},
                                            {"ConnectX-6", {{20, 35, 2000}}}};

void CheckFirmware(const NetDevice& device, Findings& out) {
    const auto version = ParseVersion(device.firmware);
    const bool mellanox = IsOneOf(device.driver, "mlx4_en mlx4_core mlx5_core");
    const std::string firmware = device.firmware.empty() ? "unknown" : device.firmware;
    for (const auto& [card, good] : kKnownFirmware) {
        if (!version || !mellanox || good.part[0] != version->part[0] || *version >= good) continue;
        return Report<found::kNicFirmwareOld>(
            out, device.name, device.driver, firmware, card,
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
    std::string_view names;  // parts of lspci's name, separated by '|'
    std::string_view module;
};
constexpr CardModule kCardModules[] = {
    // ConnectX-3 Pro is 1007. Connect-IB, the first card of mlx5, is 1011.
    {"15b3", 0x1001, 0x1010, "ConnectX-3|MT275|ConnectX-2|MT26", "mlx4_core"},
    {"15b3", 0x6340, 0x6778, "", "mlx4_core"},
    {"15b3", 0, 0xffff, "Mellanox", "mlx5_core"},
    {"8086", 0x1591, 0x159b, "E810|E823", "ice"},
    {"8086", 0x188a, 0x1894, "", "ice"},
    {"8086", 0x1572, 0x158b, "X710|X722", "i40e"},
    {"8086", 0x37cc, 0x37d3, "", "i40e"},
    // Broadcom's cards from 10 Gb/s on; its 1 Gb/s cards (16xx below 16c0) belong to tg3.
    {"14e4", 0x16c0, 0x16f1, "NetXtreme-E|BCM57", "bnxt_en"},
    {"14e4", 0x1750, 0x1807, "", "bnxt_en"},
    {"14e4", 0xd802, 0xffff, "", "bnxt_en"},
    {"17db", 0, 0xffff, "", "cxi_ss1"},
    {"1dd8", 0, 0xffff, "", "ionic"},
    {"1425", 0, 0xffff, "", "cxgb4"},
    {"1d6a", 0, 0xffff, "", "atlantic"},
    {"10ec", 0, 0xffff, "", "r8169"},
    {"8086", 0x15f2, 0x15f3, "I225|I226", "igc"},
    {"8086", 0x125b, 0x125d, "", "igc"},
};

// The module that drives the card; "": unknown.
std::string_view ModuleOf(const PciDevice& card) {
    const int64_t id = Integer(card.device, 16).value_or(0);
    for (const CardModule& row : kCardModules) {
        const bool known = card.vendor == row.vendor && id >= row.first && id <= row.last;
        if (known || (!row.names.empty() && ContainsAny(card.name, row.names))) return row.module;
    }
    return {};
}

std::string DriverFix(HostView& view, const PciDevice& card) {
    if (const std::string newer = NewerKernelFor(view, card); !newer.empty()) return newer;
    const std::string lspci = "'lspci -k -s " + ShellWord(card.address) + "'";
    const std::string_view module = ModuleOf(card);
    const std::string none = module == "mlx4_core" ? Cure(view, "mlx4-driver") : "";
    if (!none.empty()) return none;
    return (module.empty() ? "load the module that " + lspci + " lists with sudo modprobe"
                           : fmt::format("sudo modprobe {} ({} lists it)", module, lspci)) +
           Cure(view, "more-modules");
}

// ---- nic-speed: negotiated Ethernet speeds.

// Highest speed of the interface in Mb/s; 0: unknown. Without ethtool's output, the card's PCI id
// gives the speed if all ports of that model have the same speed.
double MaxSpeedOf(HostView& view, const NetDevice& device) {
    // E810-C for QSFP, ConnectX-4, ConnectX-5 Ex, ConnectX-6 and ConnectX-7; Thor 2.
    constexpr std::string_view k100 = "8086:1592 15b3:1013 15b3:1019 15b3:101b 15b3:1021";
    constexpr std::string_view k200 = "14e4:1760";
    if (device.most_megabits > 0) return device.most_megabits;
    const PciDevice* card = FindPci(view, device.pci);
    if (card == nullptr || card->is_virtual) return 0;
    return IsOneOf(card->Id(), k100) ? 100'000 : card->Id() == k200 ? 200'000 : 0;
}

// Whether the port runs on fewer than its four lanes: 25 Gb/s on a 100 Gb/s port, 10 on a 40 Gb/s
// port.
bool LostLanes(double megabits, double most) {
    if (most < 40000 || megabits >= 100000) return false;
    return megabits * 4 <= most || megabits == 25000 || (megabits == 50000 && most == 100000);
}

void EstimateSpeedCost(const NetDevice& device, double megabits, Findings& out) {
    EstimateLinkCost(out, PortLink(device),
                     [&](HostLink&, HostLink& expected) { expected.gigabits = megabits / 1000; });
}

void CheckLanes(HostView& view, const NetDevice& device, double most, Findings& out) {
    const bool sibling = std::ranges::any_of(NetDevices(view), [&](const NetDevice& one) {
        return one.up && one.name != device.name && IsOneCard(one.pci, device.pci) &&
               one.megabits > device.megabits;
    });
    const bool fault = LostLanes(device.megabits, most) && IsForRanks(view, device) && !sibling;
    ReportAs<found::kNicLanes>(fault ? kWarn : kNote, out, device.name, device.SpeedText(),
                               most / 1000, device.megabits / 8000, most / 8000,
                               ShellWord(device.name));
    EstimateSpeedCost(device, most, out);
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

// The log's line about an adapter on a port of 480 Mb/s; "": there is no such line.
std::string SlowUsbLine(HostView& view, const NetDevice& device) {
    std::string slow;
    const std::string port = UsbPort(view, device);
    if (port.empty() || device.megabits < 1000) return slow;
    for (const LogLine& line : KernelLogLines(view)) {
        if (!Contains(line.lower, "usb ") || !Contains(line.lower, port + ":")) continue;
        if (!Contains(line.lower, "usb device number")) continue;
        slow = Contains(line.lower, " high-speed usb device") ? line.raw : "";
    }
    return slow;
}

// The hypervisor emulates the card.
bool IsEmulated(HostView& view, const NetDevice& device) {
    return IsOneOf(device.driver, "e1000 8139cp 8139too pcnet32 ne2k-pci") &&
           IsVirtualMachine(view);
}

void CheckSpeed(HostView& view, const NetDevice& device, Findings& out) {
    const bool for_ranks = IsForRanks(view, device);
    const Severity severity = for_ranks ? kWarn : kNote;
    if (const std::string line = SlowUsbLine(view, device); !line.empty()) {
        return ReportAs<found::kNicUsb2>(severity, out, device.name, device.SpeedText(), line,
                                         device.megabits / 8);
    }
    if (IsEmulated(view, device)) {
        return ReportAs<found::kNicEmulated>(severity, out, device.name, device.driver);
    }
    if (device.wireless) return Report<found::kNicWireless>(out, device.name);
    const std::string read = fmt::format("{}: {}{}", device.name, device.SpeedText(),
                                         device.duplex.empty() ? "" : ", duplex " + device.duplex);
    const std::string name = ShellWord(device.name);
    const bool slow = device.megabits > 0 && device.megabits < 1000;
    const bool half = device.duplex == "half";
    // The port of the management controller, or a port without an address.
    const bool unused = device.addressed && device.addresses.empty();
    const bool management = device.driver.starts_with("cdc_") || device.driver == "rndis_host";
    if (!for_ranks && (unused || management) && (slow || half)) {
        Report<found::kNicSlowUnused>(out, read, name);
    } else if (half) {
        Report<found::kNicHalfDuplex>(out, read, name);
    } else if (slow) {
        Report<found::kNicSlow>(out, read, name, 1000 / device.megabits);
        EstimateSpeedCost(device, 1000, out);
    } else if (device.megabits > 0) {
        out.Ok(read);
    }
}

// ---- nic-gpu: distance of network card and GPU on machines with several memory nodes.

// Checks the table of `nvidia-smi topo -m`: "GPU0  X  SYS  SYS  0-31  0". Returns false if the
// table does not list GPUs and cards.
bool CheckTopology(HostView& view, Findings& out) {
    const Reading table = view.Command("nvidia-smi topo -m");
    if (!table.found()) return false;
    std::vector<size_t> cards;  // columns
    size_t far = 0, all = 0;
    for (const auto& words : WordLines(table.text)) {
        const bool head = words[0] == "GPU0" && words.size() > 1 &&
                          (IsOneOf(words[1], "GPU1 NIC0") || words[1].starts_with("mlx"));
        for (size_t i = 0; head && i < words.size(); ++i) {
            if (BeginsWithOneOf(words[i], "NIC mlx")) cards.push_back(i);
        }
        if (head || !words[0].starts_with("GPU")) continue;
        bool is_near = false, is_far = false;
        for (size_t card : cards) {
            const std::string_view link = card + 1 < words.size() ? words[card + 1] : "";
            is_near = is_near || IsOneOf(link, "PIX PXB PHB NODE");
            is_far = is_far || link == "SYS";
        }
        all += is_near || is_far;
        far += is_far && !is_near;
    }
    if (all == 0) return false;
    if (far == 0) {
        out.Ok("each GPU has a network card beside it");
    } else {
        ReportAs<found::kGpuFarTable>(far == all ? kWarn : kNote, out, far, all);
    }
    return true;
}

}  // namespace

void RunNicDriver(HostView& view, Findings& out) {
    const std::vector<PciDevice>& cards = PciDevices(view);
    // If no card shows a driver, the reading has no drivers, so none is known to be missing.
    const bool drivers =
        std::ranges::any_of(cards, [](const auto& one) { return !one.driver.empty(); });
    for (const PciDevice& card : cards) {
        if (!card.IsNetwork() || !card.driver.empty() || card.lost) continue;
        if (card.is_virtual || card.cut) continue;
        if (card.last && card.modules.empty()) continue;  // the end of the text is missing
        // A card with an interface has a driver, even if none was read.
        const std::string folder = "sys/bus/pci/devices/" + card.address;
        if (!view.List(folder + "/net").empty() || !view.List(folder + "/infiniband").empty()) {
            continue;
        }
        if ((drivers && !card.name.empty()) || view.Link(folder).found()) {
            Report<found::kNicNoDriver>(out, card.Text(), DriverFix(view, card));
        }
    }
    for (const NetDevice& device : NetDevices(view)) {
        if (device.physical && !device.driver.empty()) CheckFirmware(device, out);
    }
}

void RunNicSpeed(HostView& view, Findings& out) {
    for (const NetDevice& device : NetDevices(view)) {
        if (!device.physical || !device.up) continue;
        const double most = MaxSpeedOf(view, device);
        if (!IsIpoib(view, device) && !device.wireless && device.megabits > 0 && most >= 40000 &&
            device.megabits * 2 <= most) {
            CheckLanes(view, device, most, out);
        } else {
            CheckSpeed(view, device, out);
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
        ReportUnless<found::kNicCoalescing>(fine, out, device.name, *delay_us,
                                            adaptive ? ", adaptive" : "", kMaxDelayUs,
                                            ShellWord(device.name));
        if (fine) continue;
        EstimateLinkCost(out, PortLink(device),
                         [&](HostLink& actual, HostLink&) { actual.waits_s = *delay_us * 1e-6; });
    }
}

void RunNicGpu(HostView& view, Findings& out) {
    constexpr double kFastGigabits = 20;
    if (CheckTopology(view, out)) return;
    std::vector<PciDevice> gpus, cards;
    for (const PciDevice& device : PciDevices(view)) {
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
    ReportAs<found::kGpuFarNode>(far.size() == gpus.size() ? kWarn : kNote, out, ListText(places),
                                 Joined(far));
}

}  // namespace weft::doctor::checks
