// Compares hosts: network cards, RDMA protocols, and the interfaces over which hosts reach others.
#include "doctor/checks/checks.h"

namespace weft::doctor::checks {
namespace {

// ---- across-cards: the same kind of card, driver and firmware on all hosts.

// A virtual interface, or one that combines others.
bool IsVirtual(const NetDevice& device) {
    constexpr std::array<std::string_view, 16> kPrefixes = {
        "bond", "team", "br",     "docker", "virbr", "veth",  "vlan",    "tun",
        "tap",  "wg",   "podman", "cni",    "lxc",   "vxlan", "macvlan", "dummy"};
    return device.name.find('.') != std::string::npos ||
           std::ranges::any_of(
               kPrefixes, [&](std::string_view prefix) { return device.name.starts_with(prefix); });
}

// Null: unknown.
const NetDevice* FastestCard(const std::vector<NetDevice>& devices) {
    const NetDevice* fastest = nullptr;
    for (const NetDevice& device : devices) {
        const bool known = device.physical && !device.driver.empty();
        // A device that is up and lacks a known speed or driver may be the fastest.
        if (device.up && !device.wireless && !IsVirtual(device) &&
            !device.name.starts_with("thunderbolt") && (!known || device.megabits <= 0)) {
            return nullptr;
        }
        if (!known) continue;
        if (fastest == nullptr || device.megabits > fastest->megabits) fastest = &device;
    }
    return fastest;
}

// Drivers of one vendor, whose cards understand each other's settings.
std::string VendorOf(const std::string& driver) {
    if (driver.starts_with("mlx")) return "NVIDIA (Mellanox)";
    if (driver == "ice" || driver == "i40e" || driver == "ixgbe" || driver == "igc") return "Intel";
    if (driver.starts_with("bnxt")) return "Broadcom";
    if (driver.starts_with("r81")) return "Realtek";
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

struct Protocols {
    std::vector<std::string> names;  // "InfiniBand", "RoCE", "iWARP"
    const RdmaPort* port = nullptr;  // one of them
};

// Protocols of a host's ports that are up; if none is up, of all ports.
Protocols ProtocolsOf(const std::vector<RdmaPort>& ports) {
    Protocols protocols;
    const bool any = std::ranges::any_of(
        ports, [](const RdmaPort& port) { return port.active() && !port.software(); });
    for (const RdmaPort& port : ports) {
        const std::string name = port.iwarp          ? "iWARP"
                                 : port.infiniband() ? "InfiniBand"
                                 : port.ethernet()   ? "RoCE"
                                                     : "";
        if (name.empty() || port.software() || (any && !port.active())) continue;
        if (IsIn(protocols.names, name)) continue;
        protocols.names.push_back(name);
        protocols.port = &port;
    }
    return protocols;
}

// A port that hosts would use, its host, and all ports of that host.
struct OwnedPort {
    HostView& view;
    const RdmaPort& port;
    const std::vector<RdmaPort>& all;
};

// Sets one of two ports to the protocol of the other: to InfiniBand if most hosts have it and the
// Ethernet port can.
std::string ProtocolCure(const OwnedPort& ethernet, const OwnedPort& infiniband,
                         bool most_infiniband) {
    for (const bool to_infiniband : {most_infiniband, !most_infiniband}) {
        const OwnedPort& changed = to_infiniband ? ethernet : infiniband;
        if (!CanSpeak(ethernet.view, ethernet.port, to_infiniband) ||
            !CanSpeak(infiniband.view, infiniband.port, to_infiniband)) {
            continue;
        }
        const bool both_up = ethernet.port.active() && infiniband.port.active();
        return fmt::format(
            "on {}: {}; {}{}or --transport tcp", changed.view.host(),
            SetLinkType(changed.view, changed.port.pci, PortOfCard(changed.port, changed.all),
                        to_infiniband, changed.port.mlx4()),
            both_up ? fmt::format("connect it to the {} switch; ",
                                  to_infiniband ? "InfiniBand" : "Ethernet")
                    : "",
            to_infiniband ? "one subnet manager (opensm) must run; " : "");
    }
    if (ethernet.port.iwarp) {
        return "set the iWARP card to RoCE (rdma-device has the command) and the other port to "
               "Ethernet, or --transport tcp";
    }
    return "use cards of one kind on all hosts, or --transport tcp";
}

// Reports two hosts whose RDMA ports have no protocol in common. most_infiniband: most hosts have
// InfiniBand.
bool CheckProtocols(HostView& a, HostView& b, bool most_infiniband, Findings& out) {
    const auto first = RdmaPorts(a), second = RdmaPorts(b);
    const Protocols one = ProtocolsOf(first), two = ProtocolsOf(second);
    if (one.names.empty() || two.names.empty()) return false;
    for (const std::string& name : one.names) {
        if (IsIn(two.names, name)) return false;
    }
    const OwnedPort left{a, *one.port, first}, right{b, *two.port, second};
    const bool swap = one.port->infiniband();
    const bool differ = one.port->infiniband() != two.port->infiniband();
    const std::string fix =
        differ ? ProtocolCure(swap ? right : left, swap ? left : right, most_infiniband)
               : "set both to RoCE (rdma-device has the commands), or --transport tcp";
    Report<found::kProtocolsDiffer>(a, out, Joined(one.names), a.host(), one.port->Text(),
                                    Joined(two.names), b.host(), two.port->Text(), fix);
    return true;
}

// For the host with the fastest card: its link at the speed of the slowest card.
void AskSlowestCost(Hosts hosts, Findings& out) {
    std::optional<HostLink> slow, fast;
    HostView* owner = nullptr;
    for (const auto& host : hosts) {
        const std::vector<NetDevice> devices = NetDevices(*host);
        const NetDevice* card = FastestCard(devices);
        const auto link = card == nullptr ? std::nullopt : PortLink(*card);
        if (!link) continue;
        if (!slow || link->gigabits < slow->gigabits) slow = link;
        if (fast && link->gigabits <= fast->gigabits) continue;
        fast = link;
        owner = host.get();
    }
    if (owner != nullptr) out.AskCost(LinkQuestion(*owner, *slow, *fast));
}

// ---- across-route: the interfaces over which hosts reach each other.

struct Host {
    HostView* view = nullptr;
    std::string name;
    std::vector<NetDevice> devices;
    std::vector<Route> routes;
    const NetDevice* fastest = nullptr;  // among those that are up
};

std::string PrefixText(const Ipv4& address) {
    return fmt::format("{}/{}", address.Text(), address.prefix);
}

// The route of packets from `from` to `device` of another host; null: none.
const Route* RouteToDevice(const Host& from, const NetDevice& device) {
    for (const Ipv4& address : device.addresses) {
        if (address.IsLoopback()) continue;
        const Route* route = RouteTo(from.routes, address);
        if (route != nullptr) return route;
    }
    return nullptr;
}

// The link of the fastest cards: RDMA if the card has an RDMA port that is up.
HostLink FastLink(const Host& from, double megabits) {
    HostLink link;
    for (const RdmaPort& port : RdmaPorts(*from.view)) {
        const auto rdma = PortLink(port);
        if (rdma && IsIn(RdmaInterfaces(*from.view, port), from.fastest->name)) link = *rdma;
    }
    link.gigabits = megabits / 1000;
    return link;
}

// Reports that the address of `own` has a longer prefix than the one of `far`, so that only `to`
// has a direct route to the other host.
bool CheckNetmasks(const Host& from, const Host& to, Findings& out) {
    const NetDevice &own = *from.fastest, &far = *to.fastest;
    for (const Ipv4& mine : own.addresses) {
        for (const Ipv4& other : far.addresses) {
            const Ipv4 wide{mine.bits, other.prefix}, narrow{other.bits, mine.prefix};
            const Route* route = RouteTo(from.routes, other);
            const bool direct = route != nullptr && !route->has_gateway;
            if (mine.prefix <= other.prefix || mine.prefix >= 31 || direct || other.IsLinkLocal() ||
                wide.network() != other.network() || narrow.network() == mine.network()) {
                continue;
            }
            Report<found::kNetmasksDiffer>(*from.view, out, PrefixText(mine), own.name, from.name,
                                           PrefixText(other), far.name, to.name,
                                           ShellWord(from.name), mine.Text(), other.prefix,
                                           ShellWord(own.name), mine.prefix);
            return true;
        }
    }
    return false;
}

// Whether `from` connected to one of the device's addresses while the doctor ran (doctor/reach.h).
bool Connected(const Host& from, const NetDevice& device) {
    const Reading outcomes = from.view->Probe("reach");
    for (std::string_view line : Lines(outcomes.text)) {
        const auto words = Words(line);
        const auto connects = [&](const Ipv4& address) {
            return words.size() >= 3 && words[0] == address.Text() && words[2] == "open";
        };
        if (std::ranges::any_of(device.addresses, connects)) return true;
    }
    return false;
}

bool IsWsl(const Host& host) {
    return HasTag(*host.view, "wsl") || Contains(KernelRelease(*host.view), "WSL");
}

bool HasVpn(const Host& host) {
    return std::ranges::any_of(host.devices, [](const NetDevice& device) {
        const bool named = device.name.starts_with("tailscale") || device.name.starts_with("wg") ||
                           device.name.starts_with("zt") || device.name.starts_with("nebula");
        const bool shared = std::ranges::any_of(device.addresses, &Ipv4::IsShared);
        return !device.addresses.empty() && (named || (shared && !device.physical));
    });
}

// Whether NAT is likely between two hosts that only their default routes join. own, far: their
// addresses.
bool HasSignOfNat(const Host& from, const Ipv4& own, const Host& to, const Ipv4& far) {
    return IsWsl(from) || IsWsl(to) || own.IsHome() || far.IsHome() ||
           own.IsPrivate() != far.IsPrivate() || (HasVpn(from) && HasVpn(to));
}

// Whether one gateway joins the hosts (a pod network's, for example), or they have connected.
bool AreJoined(const Host& from, const Route& route, const Host& to, const Route& back) {
    const bool one = !route.gateway.empty() && route.gateway == back.gateway;
    return (one && !IsWsl(from) && !IsWsl(to)) || Connected(from, *to.fastest);
}

// Reports two hosts that only their default routes join.
void ReportDefaultRoutes(const Host& from, const Host& to, Findings& out) {
    const Ipv4 &own = from.fastest->addresses.front(), &far = to.fastest->addresses.front();
    const std::string expected = fmt::format("{} reaches {} by {} ({})", from.name, to.name,
                                             from.fastest->name, from.fastest->SpeedText());
    if (HasSignOfNat(from, own, to, far)) {
        return Report<found::kOnlyDefaultRoute>(*from.view, out, expected, from.name, far.Text(),
                                                to.fastest->name, to.name);
    }
    Report<found::kRouted>(*from.view, out, expected, from.name, far.Text(), to.fastest->name,
                           to.name);
}

void CheckRoute(const Host& from, const Host& to, Findings& out) {
    if (from.fastest == nullptr || to.fastest == nullptr) return;
    const NetDevice &own = *from.fastest, &far = *to.fastest;
    if (!own.addressed || !far.addressed) return;
    const std::string expected =
        fmt::format("{} reaches {} by {} ({})", from.name, to.name, own.name, own.SpeedText());
    if (far.addresses.empty() || own.addresses.empty()) {
        const Host& bare = far.addresses.empty() ? to : from;
        return Report<found::kCardNoAddress>(
            *bare.view, out, expected, bare.name, bare.fastest->name, bare.fastest->SpeedText(),
            ShellWord(bare.name), AddAddress(*bare.view, bare.fastest->name));
    }
    const Route* route = RouteToDevice(from, far);
    const NetDevice* device =
        route == nullptr ? nullptr : FindNetDevice(from.devices, route->device);
    const Ipv4& address = far.addresses.front();
    const double possible = std::min(own.megabits, far.megabits);
    const bool fine =
        device == nullptr || device->megabits >= possible * 0.99 || device->megabits <= 0;
    if (fine && CheckNetmasks(from, to, out)) return;
    if (device == nullptr) {
        return Report<found::kNoRoute>(*from.view, out, expected, from.name, address.Text(),
                                       far.name, to.name);
    }
    const auto leaves = [](const Route* one) {
        return one != nullptr && one->to.prefix == 0 && one->has_gateway;
    };
    const Route* back = RouteToDevice(to, own);
    if (fine && leaves(route) && leaves(back) && !AreJoined(from, *route, to, *back)) {
        return ReportDefaultRoutes(from, to, out);
    }
    ReportAs<found::kSlowRoute>(
        fine ? Severity::kOk : Severity::kFail, *from.view, out, expected, from.name,
        address.Text(), far.name, to.name, device->name, device->SpeedText(),
        device->megabits / 8000, possible / 8000, ShellWord(own.name), ShellWord(from.name),
        PrefixText(address), ShellWord(far.name), ShellWord(to.name), own.addresses.front().Text());
    if (fine) return;
    if (const auto slow = PortLink(*device)) {
        out.AskCost(LinkQuestion(*from.view, *slow, FastLink(from, possible)));
    }
}

// Another interface over this one, such as a VLAN, has the addresses.
bool CarriesAddresses(const Host& host, const NetDevice& device) {
    return device.addresses.empty() && std::ranges::any_of(host.devices, [&](const NetDevice& one) {
               return one.lower == device.name && one.up && !one.addresses.empty();
           });
}

// The fastest interfaces of two hosts share a subnet, but on different VLANs: reports it.
// known: the pair is already reported.
bool CheckVlans(const Host& a, const Host& b, bool known, Findings& out) {
    if (a.fastest == nullptr || b.fastest == nullptr) return false;
    const auto one = a.fastest->VlanId(), two = b.fastest->VlanId();
    if (!one || !two || *one == *two) return false;
    for (const Ipv4& mine : a.fastest->addresses) {
        for (const Ipv4& other : b.fastest->addresses) {
            if (mine.prefix != other.prefix || mine.network() != other.network()) continue;
            if (known) return true;
            Report<found::kVlansDiffer>(*b.view, out, PrefixText(mine), a.fastest->name, a.name,
                                        *one, PrefixText(other), b.fastest->name, b.name, *two);
            return true;
        }
    }
    return false;
}

// A host's addresses on Thunderbolt cables, without those with a route per address.
std::vector<Ipv4> CableAddresses(const Host& host) {
    std::vector<Ipv4> addresses;
    for (const NetDevice& device : host.devices) {
        const bool cable =
            device.name.starts_with("thunderbolt") || device.driver.starts_with("thunderbolt");
        if (!cable || !device.up) continue;
        for (const Ipv4& address : device.addresses) {
            if (address.prefix < 31 && !address.IsLinkLocal()) addresses.push_back(address);
        }
    }
    return addresses;
}

// Both ends of a cable must be in one subnet.
void CheckCables(const Host& a, const Host& b, Findings& out) {
    const std::vector<Ipv4> one = CableAddresses(a), two = CableAddresses(b);
    if (one.empty() || two.empty()) return;
    for (const Ipv4& mine : one) {
        for (const Ipv4& other : two) {
            if (mine.prefix == other.prefix && mine.network() == other.network()) return;
        }
    }
    Report<found::kCableSubnets>(*b.view, out, PrefixText(one.front()), a.name,
                                 PrefixText(two.front()), b.name, ShellWord(b.name));
}

}  // namespace

void AcrossCards(Hosts hosts, Findings& out) {
    HostGroups vendors, drivers, firmware, speeds;
    for (const auto& host : hosts) {
        const std::vector<NetDevice> devices = NetDevices(*host);
        const NetDevice* card = FastestCard(devices);
        if (card == nullptr && !devices.empty()) continue;
        const std::string driver = card == nullptr ? DriverByPci(*host) : card->driver;
        if (driver.empty()) continue;
        vendors[VendorOf(driver)].push_back(host->host());
        drivers[driver].push_back(host->host());
        if (card == nullptr) continue;
        if (!card->firmware.empty()) firmware[card->firmware].push_back(host->host());
        if (card->megabits > 0) speeds[card->SpeedText()].push_back(host->host());
    }
    HostView& view = *hosts.front();
    if (speeds.size() > 1) {
        Report<found::kSpeedsDiffer>(view, out, TextOf(speeds));
        AskSlowestCost(hosts, out);
    }
    if (vendors.size() > 1) {
        const bool rdma =
            std::ranges::any_of(hosts, [](const auto& host) { return HasRdma(*host); });
        if (rdma) Report<found::kVendorsDifferRdma>(view, out, TextOf(vendors));
        if (!rdma) Report<found::kVendorsDiffer>(view, out, TextOf(vendors));
    } else if (drivers.size() > 1) {
        Report<found::kDriversDiffer>(view, out, TextOf(drivers));
    } else if (firmware.size() > 1) {
        Report<found::kFirmwareDiffers>(view, out, TextOf(firmware));
    }
    const auto infiniband = std::ranges::count_if(hosts, [](const auto& host) {
        return IsIn(ProtocolsOf(RdmaPorts(*host)).names, "InfiniBand");
    });
    const bool most = 2 * infiniband > std::ssize(hosts);
    bool differ = false;
    for (size_t a = 0; a < hosts.size(); ++a) {
        for (size_t b = a + 1; b < hosts.size() && !differ; ++b) {
            differ = CheckProtocols(*hosts[a], *hosts[b], most, out);
        }
    }
    if (!drivers.empty() && out.empty()) out.Ok(TextOf(drivers));
}

void AcrossRoute(Hosts hosts, Findings& out) {
    std::vector<Host> known;
    for (const auto& view : hosts) {
        known.push_back({view.get(), view->host(), NetDevices(*view), Routes(*view)});
    }
    for (Host& host : known) {
        for (const NetDevice& device : host.devices) {
            if (!device.up || device.wireless || device.megabits <= 0 || !device.master.empty() ||
                IsOfContainers(device.name) || CarriesAddresses(host, device)) {
                continue;
            }
            // If two ports are equally fast, hosts use the port that has an address.
            const bool first = host.fastest == nullptr;
            const bool used = !first && device.megabits == host.fastest->megabits &&
                              host.fastest->addresses.empty() && !device.addresses.empty();
            if (first || used || device.megabits > host.fastest->megabits) host.fastest = &device;
        }
    }
    if (known.size() == 2) CheckCables(known[0], known[1], out);
    for (const Host& from : known) {
        for (const Host& to : known) {
            if (&from == &to || out.Count() >= 64) continue;
            const bool apart = CheckVlans(from, to, &from > &to, out);
            if (!apart && !from.routes.empty()) CheckRoute(from, to, out);
        }
    }
}

}  // namespace weft::doctor::checks
