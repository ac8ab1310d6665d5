// Checks state, link layer and rate of RDMA ports.
#include "doctor/checks/checks.h"

namespace weft::doctor::checks {
namespace {

std::string StateText(const RdmaPort& port) {
    return fmt::format("{}: state {}, physical {}, {} {}", port.Text(), port.state,
                       port.physical.empty() ? "unknown" : port.physical, port.link_layer,
                       port.rate);
}

struct OtherPorts {
    bool active = false;
    bool on_card = false;         // active, on the same card
    bool on_card_unlike = false;  // active, with the other protocol
    bool unread = false;
};

// Functions "0000:01:00.0" and "0000:01:00.1" belong to one card.
bool IsOneCard(const RdmaPort& a, const RdmaPort& b) {
    if (a.device == b.device || (!a.image.empty() && a.image == b.image)) return true;
    return a.pci.size() == 12 && b.pci.size() == 12 && a.pci.substr(0, 10) == b.pci.substr(0, 10);
}

// Enables a disabled port.
std::string EnableFix(HostView& view, const RdmaPort& port) {
    const std::vector<std::string> interfaces = RdmaInterfaces(view, port);
    const std::string device = ShellWord(port.device);
    std::string name = interfaces.empty() ? "" : ShellWord(interfaces.front());
    const std::string by_port = fmt::format("sudo ibportstate -C {} {} enable", device, port.port);
    if (name.empty() && !port.ethernet()) return by_port;
    if (name.empty()) {
        name = fmt::format("\"$(rdma link show {}/{} | sed 's/.*netdev //; s/ .*//')\"", device,
                           port.port);
    }
    // ibportstate does not handle Ethernet.
    return fmt::format("sudo ip link set dev {} up{}", name,
                       port.ethernet() ? "" : ", or: " + by_port);
}

// Switches the port to its other protocol.
std::string OtherProtocolFix(HostView& view, const RdmaPort& port) {
    return SetLinkType(view, port.pci, PortOfCard(port, RdmaPorts(view)), port.ethernet(),
                       port.mlx4());
}

// A port that is down is meant to be used: its interface has an address, or the driver reported a
// plugged cable.
bool IsMeantToBeUsed(HostView& view, const RdmaPort& port) {
    const std::vector<NetDevice> devices = NetDevices(view);
    for (const std::string& name : RdmaInterfaces(view, port)) {
        const NetDevice* device = FindNetDevice(devices, name);
        // A link-local address is assigned automatically.
        if (device != nullptr && !std::ranges::all_of(device->addresses, &Ipv4::IsLinkLocal)) {
            return true;
        }
    }
    bool plugged = false;
    for (const LogLine& line : KernelLogLines(KernelLog(view))) {
        if (port.pci.empty() || PciAddressIn(line.known) != port.pci) continue;
        const auto module = NumberAfter(line.lower, "module ");
        if (!module || static_cast<int64_t>(*module) != port.port - 1) continue;
        if (Contains(line.lower, "cable plugged")) plugged = true;
        if (Contains(line.lower, "cable unplugged")) plugged = false;
    }
    return plugged;
}

void AskRateCost(HostView& view, const RdmaPort& port, double gigabits, Findings& out) {
    const auto link = PortLink(port);
    if (!link || gigabits <= link->gigabits) return;
    AskLinkCost(view, out, link,
                [&](HostLink&, HostLink& expected) { expected.gigabits = gigabits; });
}

void CheckActive(HostView& view, const RdmaPort& port, Findings& out) {
    const std::string read = StateText(port);
    const double min_rate = LeastRateOf(port);
    const char* generation = min_rate >= 56   ? "FDR 56 Gb/s or more"
                             : min_rate >= 40 ? "QDR 40 or FDR 56 Gb/s"
                                              : "QDR 40, FDR 56, EDR 100 Gb/s";
    const bool slow = min_rate > 0 && port.gigabits > 0 && port.gigabits < min_rate * 0.7;
    const bool sdr = Contains(port.rate, "SDR") && port.gigabits <= 10;
    if (!port.infiniband()) {
        out.Ok(read);
    } else if (Contains(port.rate, "(1X")) {  // one of four lanes: "25 Gb/sec (1X EDR)"
        Report<found::kPortOneLane>(view, out, read, port.gigabits / 8, port.gigabits / 2);
        AskRateCost(view, port, port.gigabits * 4, out);
    } else if (slow || sdr) {
        Report<found::kPortSlow>(view, out, read, generation, port.gigabits / 8);
        AskRateCost(view, port, min_rate, out);
    } else if (Contains(port.rate, "DDR") && port.gigabits <= 20) {
        // Also the speed of cards before ConnectX-2.
        Report<found::kPortDdr>(view, out, read, generation);
    } else {
        out.Ok(read);
    }
}

void CheckDown(HostView& view, const RdmaPort& port, const OtherPorts& others, Findings& out) {
    std::string fix = port.physical == "Disabled"
                          ? EnableFix(view, port)
                          : "plug in the cable on both ends, try another cable, set the same "
                            "speed and FEC on both ends; 'rdma link' shows the state";
    if (port.mellanox()) {
        fix +=
            fmt::format("; if the other end uses {}, set this port to it: {}",
                        port.ethernet() ? "InfiniBand" : "Ethernet", OtherProtocolFix(view, port));
    }
    // A card with two ports and one cable.
    const bool idle = port.physical == "Polling" || port.physical == "Disabled";
    const std::string read = StateText(port);
    if (others.on_card && idle)
        return ReportOk(out, "{}: not in use, another port of the card is", read);
    if (others.unread) return Report<found::kPortDownOthersUnread>(view, out, read, fix);
    ReportAs<found::kPortDown>(
        others.active ? Severity::kNote : Severity::kFail, view, out, read,
        others.active ? "another port is up" : "no link: Weft falls back to another network", fix);
}

void CheckPort(HostView& view, const RdmaPort& port, const OtherPorts& others, Findings& out) {
    const std::string read = StateText(port);
    if (port.active()) return CheckActive(view, port, out);
    if (port.no_guid && port.infiniband()) {
        // A virtual function without GUIDs never comes up.
        return ReportAs<found::kPortNoGuid>(
            others.active || others.unread ? Severity::kNote : Severity::kFail, view, out, read);
    }
    if (port.state == "INIT" || port.state == "ARMED") {
        return Report<found::kPortNoManager>(view, out, read, StartManager(view, port));
    }
    // A VPI card supports both protocols, separately for each port.
    if (others.on_card_unlike && port.mellanox()) {
        const bool meant = IsMeantToBeUsed(view, port);
        return ReportAs<found::kPortProtocol>(
            meant ? Severity::kWarn : Severity::kNote, view, out, read,
            port.ethernet() ? "InfiniBand" : "Ethernet",
            meant ? "a port of a VPI card in the wrong mode stays down: its cable carries nothing"
                  : "the mode does not matter while no cable is in the port",
            OtherProtocolFix(view, port));
    }
    CheckDown(view, port, others, out);
}

}  // namespace

void RunRdmaPort(HostView& view, Findings& out) {
    const std::vector<RdmaPort> ports = RdmaPorts(view);
    for (const RdmaPort& port : ports) {
        OtherPorts others;
        for (const RdmaPort& other : ports) {
            const bool on_card = other.active() && IsOneCard(port, other);
            others.active |= other.active() && !other.software();
            others.on_card |= on_card;
            others.on_card_unlike |= on_card && !port.link_layer.empty() &&
                                     !other.link_layer.empty() &&
                                     port.link_layer != other.link_layer;
            others.unread |= other.state.empty();
        }
        if (!port.state.empty()) CheckPort(view, port, others, out);
    }
}

}  // namespace weft::doctor::checks
