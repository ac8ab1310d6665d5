// Checks that all hosts have the same kind of card, driver and firmware.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/pci.h"
#include "doctor/rdma.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

// A virtual interface, or one that combines others.
bool IsMade(const NetDevice& device) {
    for (const char* prefix : {"bond", "team", "br", "docker", "virbr", "veth", "vlan", "tun",
                               "tap", "wg", "cni", "podman", "lxc", "vxlan", "macvlan", "dummy"}) {
        if (device.name.starts_with(prefix)) return true;
    }
    return device.name.find('.') != std::string::npos;
}

// Null: unknown.
const NetDevice* Fastest(const std::vector<NetDevice>& devices) {
    const NetDevice* fastest = nullptr;
    for (const NetDevice& device : devices) {
        const bool known = device.physical && !device.driver.empty();
        // A device that is up and lacks a known speed or driver may be the fastest.
        const bool thunderbolt = device.name.starts_with("thunderbolt");
        if (device.up && !device.wireless && !IsMade(device) && !thunderbolt &&
            (!known || device.megabits <= 0)) {
            return nullptr;
        }
        if (!known) continue;
        if (fastest == nullptr || device.megabits > fastest->megabits) fastest = &device;
    }
    return fastest;
}

// Drivers of one vendor, whose cards understand each other's settings.
std::string Vendor(const std::string& driver) {
    if (driver.starts_with("mlx")) return "NVIDIA (Mellanox)";
    if (driver == "ice" || driver == "i40e" || driver == "ixgbe" || driver == "igc") return "Intel";
    if (driver.starts_with("bnxt")) return "Broadcom";
    if (driver == "r8169" || driver == "r8125" || driver == "r8126") return "Realtek";
    return driver;
}

// For a snapshot with lspci but no interfaces: the driver of the first card with RDMA, else of the
// first card.
std::string DriverByPci(HostView& view) {
    std::string first;
    for (const PciDevice& card : PciDevices(view)) {
        if (!card.IsNetwork() || card.driver.empty()) continue;
        if (card.driver.starts_with("mlx") || card.driver == "ice") return card.driver;
        if (first.empty()) first = card.driver;
    }
    return first;
}

struct Spoken {
    std::vector<std::string> names;  // "InfiniBand", "RoCE", "iWARP"
    const RdmaPort* port = nullptr;  // one of them
};

std::string ProtocolOf(const RdmaPort& port) {
    if (port.iwarp) return "iWARP";
    return port.infiniband() ? "InfiniBand" : port.ethernet() ? "RoCE" : "";
}

// Protocols of a host's ports that are up; if none is up, of all ports.
Spoken SpokenBy(const std::vector<RdmaPort>& ports) {
    Spoken spoken;
    const bool any = std::ranges::any_of(
        ports, [](const RdmaPort& port) { return port.active() && !port.software(); });
    for (const RdmaPort& port : ports) {
        const std::string name = ProtocolOf(port);
        if (name.empty() || port.software() || (any && !port.active())) continue;
        if (std::ranges::find(spoken.names, name) != spoken.names.end()) continue;
        spoken.names.push_back(name);
        spoken.port = &port;
    }
    return spoken;
}

// Fails for hosts whose RDMA ports have no protocol in common.
void LookAtProtocols(Hosts hosts, Findings& out) {
    constexpr const char* kExpected = "one protocol on all hosts: InfiniBand, RoCE v2";
    for (size_t a = 0; a < hosts.size(); ++a) {
        for (size_t b = a + 1; b < hosts.size(); ++b) {
            const auto first = RdmaPorts(*hosts[a]), second = RdmaPorts(*hosts[b]);
            const Spoken one = SpokenBy(first), two = SpokenBy(second);
            if (one.names.empty() || two.names.empty()) continue;
            const bool common = std::ranges::any_of(one.names, [&](const std::string& name) {
                return std::ranges::find(two.names, name) != two.names.end();
            });
            if (common) continue;
            // The Ethernet port of a card with both protocols can become an InfiniBand port.
            const bool swap = one.port->ethernet();
            const RdmaPort& port = swap ? *one.port : *two.port;
            const int64_t number = PortOfCard(port, swap ? first : second);
            const RdmaPort& other = swap ? *two.port : *one.port;
            HostView& host = swap ? *hosts[a] : *hosts[b];
            std::string fix = "cards of one kind on all hosts, or --transport tcp";
            if (port.mellanox() && port.ethernet() && other.infiniband()) {
                fix = fmt::format("on {}: {}; or --transport tcp", host.host(),
                                  SetLinkType(host, port.pci, number, true, port.mlx4()));
            } else if (one.port->iwarp || two.port->iwarp) {
                fix =
                    "RoCE on both (rdma-device has the commands), or "
                    "--transport tcp";
            }
            return out.Warn(fmt::format("{} on {} ({}); {} on {} ({})", Joined(one.names),
                                        hosts[a]->host(), one.port->Text(), Joined(two.names),
                                        hosts[b]->host(), two.port->Text()),
                            kExpected,
                            "they don't understand each other: no RDMA, but "
                            "TCP",
                            fix);
        }
    }
}

// For the host with the fastest card: its link at the speed of the slowest card.
std::optional<CostQuestion> SlowestOfThem(Hosts hosts) {
    std::optional<HostLink> slow, fast;
    HostView* owner = nullptr;
    for (const auto& host : hosts) {
        const std::vector<NetDevice> devices = NetDevices(*host);
        const NetDevice* card = Fastest(devices);
        const auto link = card == nullptr ? std::nullopt : PortLink(*card);
        if (!link) continue;
        if (!slow || link->gigabits < slow->gigabits) slow = link;
        if (fast && link->gigabits <= fast->gigabits) continue;
        fast = link;
        owner = host.get();
    }
    if (owner == nullptr) return std::nullopt;
    return LinkQuestion(*owner, *slow, *fast);
}

}  // namespace

void AcrossCards(Hosts hosts, Findings& out) {
    std::map<std::string, std::vector<std::string>> vendors, drivers, firmware, speeds;
    for (const auto& host : hosts) {
        const std::vector<NetDevice> devices = NetDevices(*host);
        const NetDevice* card = Fastest(devices);
        if (card == nullptr && !devices.empty()) continue;
        if (card == nullptr) {
            const std::string driver = DriverByPci(*host);
            if (driver.empty()) continue;
            vendors[Vendor(driver)].push_back(host->host());
            drivers[driver].push_back(host->host());
            continue;
        }
        vendors[Vendor(card->driver)].push_back(host->host());
        drivers[card->driver].push_back(host->host());
        if (!card->firmware.empty()) firmware[card->firmware].push_back(host->host());
        if (card->megabits > 0) speeds[card->SpeedText()].push_back(host->host());
    }
    const auto text = [](const auto& groups) {
        std::string words;
        for (const auto& [name, names] : groups) {
            words += fmt::format("{}{} on {}", words.empty() ? "" : "; ", name, Joined(names));
        }
        return words;
    };
    const bool rdma = [&] {
        for (const auto& host : hosts) {
            if (HasRdma(*host)) return true;
        }
        return false;
    }();
    if (speeds.size() > 1) {
        out.Warn(text(speeds), "cards of one speed",
                 "each sync waits for the slowest link: the faster cards give nothing",
                 "the same card and port speed on all hosts, or --pp in place of --tp across the "
                 "slow one");
        out.AskCost(SlowestOfThem(hosts));
    }
    if (vendors.size() > 1) {
        const char* why =
            "RDMA between cards of different makers meets different defaults of GID, MTU, retry "
            "and flow control: links that hang instead of failing";
        if (rdma) {
            out.Warn(text(vendors), "cards of one maker", why,
                     "the same card on all hosts; else --transport tcp where RDMA hangs");
        } else {
            out.Note(text(vendors), "cards of one maker", "fine for TCP; RDMA would mind", "");
        }
    } else if (drivers.size() > 1) {
        out.Note(text(drivers), "one driver",
                 "generations of cards differ in RoCE v2 and its defaults",
                 "the same generation on all hosts");
    } else if (firmware.size() > 1) {
        out.Note(text(firmware), "the same firmware",
                 "different firmware of one card negotiates differently",
                 "update the older ones (mstflint)");
    }
    LookAtProtocols(hosts, out);
    if (!drivers.empty() && out.empty()) out.Ok(text(drivers));
}

}  // namespace weft::doctor::checks
