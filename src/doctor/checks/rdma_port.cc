// Checks state, link layer and rate of RDMA ports.
#include <fmt/format.h>

#include <algorithm>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/kernel_log.h"
#include "doctor/network.h"
#include "doctor/rdma.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

std::string StateText(const RdmaPort& port) {
    return fmt::format("{}: state {}, physical {}, {} {}", port.Text(), port.state,
                       port.physical.empty() ? "not known" : port.physical, port.link_layer,
                       port.rate);
}

struct Others {
    bool active = false;
    bool of_card = false;         // active, on the same card
    bool of_card_unlike = false;  // active, with the other protocol
    bool unread = false;
};

// Functions "0000:01:00.0" and "0000:01:00.1" belong to one card.
bool IsOneCard(const RdmaPort& a, const RdmaPort& b) {
    if (a.device == b.device || (!a.image.empty() && a.image == b.image)) return true;
    return a.pci.size() == 12 && b.pci.size() == 12 && a.pci.substr(0, 10) == b.pci.substr(0, 10);
}

// Remedy for a disabled port.
std::string EnableFix(HostView& view, const RdmaPort& port) {
    const std::vector<std::string> interfaces = RdmaInterfaces(view, port);
    const std::string by_port =
        fmt::format("sudo ibportstate -C {} {} enable", ShellWord(port.device), port.port);
    if (port.ethernet()) {  // ibportstate does not handle Ethernet
        return fmt::format(
            "sudo ip link set dev {} up",
            interfaces.empty()
                ? fmt::format("\"$(rdma link show {}/{} | sed 's/.*netdev //; s/ .*//')\"",
                              ShellWord(port.device), port.port)
                : ShellWord(interfaces.front()));
    }
    return interfaces.empty() ? by_port
                              : fmt::format("sudo ip link set dev {} up, or: {}",
                                            ShellWord(interfaces.front()), by_port);
}

// Switches the port to its other protocol.
std::string OtherProtocol(HostView& view, const RdmaPort& port) {
    return SetLinkType(view, port.pci, PortOfCard(port, RdmaPorts(view)), port.ethernet(),
                       port.mlx4());
}

// A port that is down is meant to be used: its interface has an address, or the driver reported a
// plugged cable.
bool IsMeantToBeUsed(HostView& view, const RdmaPort& port) {
    const std::vector<NetDevice> devices = NetDevices(view);
    for (const std::string& name : RdmaInterfaces(view, port)) {
        const NetDevice* device = FindNetDevice(devices, name);
        if (device == nullptr) continue;
        // A link-local address is assigned automatically.
        const bool chosen = std::ranges::any_of(
            device->addresses, [](const Ipv4& address) { return !address.IsLinkLocal(); });
        if (chosen) return true;
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

// Asks for the cost of the link compared with one of `gigabits`.
void AskRate(HostView& view, const RdmaPort& port, double gigabits, Findings& out) {
    const auto so = PortLink(port);
    if (!so || gigabits <= so->gigabits) return;
    HostLink otherwise = *so;
    otherwise.gigabits = gigabits;
    out.AskCost(LinkQuestion(view, *so, otherwise));
}

// Reports a link below the rate of card and cable.
bool LookAtRate(HostView& view, const RdmaPort& port, const std::string& read, Findings& out) {
    if (!port.infiniband()) return false;
    constexpr const char* kCable =
        "a cable for the card's generation on both ends, reseated; another port of the switch; "
        "'sudo iblinkinfo' shows what each end could do";
    // One of four lanes: "25 Gb/sec (1X EDR)".
    if (Contains(port.rate, "(1X")) {
        out.Warn(read, "four lanes (4X)",
                 fmt::format("three of four lanes are lost: {:.1f} GB/s instead of {:.1f}",
                             port.gigabits / 8, port.gigabits / 2),
                 "reseat or swap the cable; look at 'iblinkinfo'");
        AskRate(view, port, port.gigabits * 4, out);
        return true;
    }
    const double least = LeastRateOf(port);
    const std::string expected =
        fmt::format("the card's generation ({})", least >= 56   ? "FDR 56 Gb/s or more"
                                                  : least >= 40 ? "QDR 40 or FDR 56 Gb/s"
                                                                : "QDR 40, FDR 56, EDR 100 Gb/s");
    const bool slow = least > 0 && port.gigabits > 0 && port.gigabits < least * 0.7;
    const bool sdr = Contains(port.rate, "SDR") && port.gigabits <= 10;
    if (slow || sdr) {
        out.Warn(read, expected,
                 fmt::format("{:.1f} GB/s: the cable or the other end holds the link down",
                             port.gigabits / 8),
                 kCable);
        AskRate(view, port, least, out);
        return true;
    }
    // Also the speed of cards before ConnectX-2.
    if (Contains(port.rate, "DDR") && port.gigabits <= 20) {
        out.Note(read, expected,
                 "2 GB/s: where the card can do more, the cable or the other end holds it down",
                 kCable);
        return true;
    }
    return false;
}

// Reports a virtual function without GUIDs, which never comes up.
bool LookAtGuid(const RdmaPort& port, const Others& others, const std::string& read,
                Findings& out) {
    if (!port.no_guid || port.active() || !port.infiniband()) return false;
    const char* expected = "a virtual function with GUIDs";
    const char* why =
        "a virtual function (SR-IOV) without a GUID gets no address of the subnet manager: its "
        "port never comes up";
    const std::string fix =
        "on the host that owns the card, once for each function: sudo ip link set dev ib0 vf 0 "
        "node_guid 02:11:22:33:44:55:00:01 port_guid 02:11:22:33:44:55:00:02, sudo ip link set "
        "dev ib0 vf 0 state auto; then start its guest, or bind its driver, again";
    if (others.active || others.unread) {
        out.Note(read + ", no GUID", expected, why, fix);
    } else {
        out.Fail(read + ", no GUID", expected, why, fix);
    }
    return true;
}

// Reports the wrong protocol. A VPI card supports both, separately for each port.
bool LookAtProtocol(HostView& view, const RdmaPort& port, const Others& others,
                    const std::string& read, Findings& out) {
    if (!others.of_card_unlike || !port.mellanox()) return false;
    const std::string expected = "ports that speak the same: InfiniBand or Ethernet";
    const std::string shown = read + fmt::format("; the other port of the card speaks {}",
                                                 port.ethernet() ? "InfiniBand" : "Ethernet");
    if (IsMeantToBeUsed(view, port)) {
        out.Warn(shown, expected,
                 "a port in the wrong mode of a VPI card stays down: its cable carries nothing",
                 OtherProtocol(view, port));
    } else {
        out.Note(shown, expected, "nothing, while no cable is in it", OtherProtocol(view, port));
    }
    return true;
}

void LookAtDown(HostView& view, const RdmaPort& port, const Others& others, const std::string& read,
                Findings& out) {
    const char* expected = "state ACTIVE, physical LinkUp";
    std::string fix = port.physical == "Disabled"
                          ? EnableFix(view, port)
                          : "plug the cable in on both ends, try another cable, set the same "
                            "speed and FEC on both ends; 'rdma link' shows the state";
    if (port.mellanox()) {
        fix += fmt::format("; where the other end speaks {}, this port must, too: {}",
                           port.ethernet() ? "InfiniBand" : "Ethernet", OtherProtocol(view, port));
    }
    const char* why = "no link: Weft falls back to another network";
    // A card with two ports and one cable.
    const bool idle = port.physical == "Polling" || port.physical == "Disabled";
    if (others.of_card && idle) {
        return out.Ok(read + ": not in use, another port of the card is");
    }
    if (others.unread) {
        return out.Note(read + "; the state of another port could not be read", expected, why, fix);
    }
    if (others.active) return out.Note(read, expected, "the other port is up", fix);
    out.Fail(read, expected, why, fix);
}

void LookRdmaPort(HostView& view, const RdmaPort& port, const Others& others, Findings& out) {
    const std::string read = StateText(port);
    if (port.active()) {
        if (!LookAtRate(view, port, read, out)) out.Ok(read);
        return;
    }
    if (LookAtGuid(port, others, read, out)) return;
    if (port.state == "INIT" || port.state == "ARMED") {
        return out.Fail(read, "state ACTIVE, physical LinkUp",
                        "the cable is good, but no subnet manager has set the port up: nothing "
                        "goes through it",
                        StartManager(view, port));
    }
    if (LookAtProtocol(view, port, others, read, out)) return;
    LookAtDown(view, port, others, read, out);
}

}  // namespace

void RunRdmaPort(HostView& view, Findings& out) {
    const std::vector<RdmaPort> ports = RdmaPorts(view);
    for (const RdmaPort& port : ports) {
        Others others;
        for (const RdmaPort& other : ports) {
            others.active = others.active || (other.active() && !other.software());
            const bool of_card = other.active() && IsOneCard(port, other);
            others.of_card = others.of_card || of_card;
            others.of_card_unlike = others.of_card_unlike || (of_card && !port.link_layer.empty() &&
                                                              !other.link_layer.empty() &&
                                                              port.link_layer != other.link_layer);
            others.unread = others.unread || other.state.empty();
        }
        if (!port.state.empty()) LookRdmaPort(view, port, others, out);
    }
}

}  // namespace weft::doctor::checks
