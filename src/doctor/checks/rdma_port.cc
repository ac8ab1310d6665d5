// State, link layer and rate of RDMA ports.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/cures.h"
#include "doctor/rdma.h"
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
    bool of_card = false;  // active, and of the same card
    bool unread = false;
};

// Of a port that was switched off.
std::string EnableFix(HostView& view, const RdmaPort& port) {
    const std::vector<std::string> interfaces = RdmaInterfaces(view, port);
    const std::string by_port =
        fmt::format("sudo ibportstate -C {} {} enable", Quoted(port.device), port.port);
    return interfaces.empty() ? by_port
                              : fmt::format("sudo ip link set dev {} up, or: {}",
                                            Quoted(interfaces.front()), by_port);
}

void LookRdmaPort(HostView& view, const RdmaPort& port, const Others& others, Findings& out) {
    const std::string read = StateText(port);
    if (port.active()) {
        // One lane of four: "25 Gb/sec (1X EDR)".
        const bool infiniband = port.link_layer == "InfiniBand";
        if (infiniband && Contains(port.rate, "(1X")) {
            return out.Warn(read, "four lanes (4X)",
                            fmt::format("three of four lanes are lost: {:.1f} GB/s instead of "
                                        "{:.1f}",
                                        port.gigabits / 8, port.gigabits / 2),
                            "reseat or swap the cable; look at 'iblinkinfo'");
        }
        // The speed of cards before ConnectX-2, too.
        if (infiniband && Contains(port.rate, "DDR") && port.gigabits <= 20) {
            return out.Note(read, "the card's generation (QDR 40, FDR 56, EDR 100 Gb/s)",
                            "2 GB/s: where the card can do more, the cable or the other end holds "
                            "it down",
                            "a cable for the card's generation; look at 'iblinkinfo'");
        }
        if (infiniband && Contains(port.rate, "SDR") && port.gigabits <= 10) {
            return out.Warn(read, "the card's generation (QDR 40, FDR 56, EDR 100 Gb/s)",
                            fmt::format("{:.1f} GB/s: the cable or the other end holds it down",
                                        port.gigabits / 8),
                            "a cable for the card's generation; look at 'iblinkinfo'");
        }
        return out.Ok(read);
    }
    const std::string expected = "state ACTIVE, physical LinkUp";
    if (port.state == "INIT" || port.state == "ARMED") {
        return out.Fail(read, expected,
                        "the cable is good, but no subnet manager has set the port up: nothing "
                        "goes through it",
                        StartManager(view, port));
    }
    const std::string fix = port.physical == "Disabled"
                                ? EnableFix(view, port)
                                : "plug the cable in on both ends, try another cable, set the same "
                                  "speed and FEC on both ends; 'rdma link' shows the state";
    const std::string why =
        "no link: Weft falls back to another network, 10 to 50 us a message "
        "instead of 2";
    // A card with two ports and one cable.
    if (others.of_card && (port.physical == "Polling" || port.physical == "Disabled")) {
        return out.Ok(read + ": not in use, another port of the card is");
    }
    if (others.unread) {
        return out.Note(read + "; the state of another port could not be read", expected, why, fix);
    }
    if (others.active) return out.Note(read, expected, "the other port is up", fix);
    out.Fail(read, expected, why, fix);
}

void RunRdmaPort(HostView& view, Findings& out) {
    const std::vector<RdmaPort> ports = RdmaPorts(view);
    for (const RdmaPort& port : ports) {
        Others others;
        for (const RdmaPort& other : ports) {
            others.active = others.active || other.active();
            others.of_card = others.of_card || (other.active() && other.device == port.device);
            others.unread = others.unread || other.state.empty();
        }
        if (!port.state.empty()) LookRdmaPort(view, port, others, out);
    }
}

}  // namespace

const Check kRdmaPort = {
    .name = "rdma-port",
    .what = "State, link layer and rate of RDMA ports.",
    .reads = "/sys/class/infiniband/*/ports/*/{state,phys_state,link_layer,rate}, or ibstat",
    .why = "A port that is not ACTIVE carries nothing; one lane of four carries a quarter.",
    .run = RunRdmaPort,
};

}  // namespace weft::doctor::checks
