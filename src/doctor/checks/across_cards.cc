// Compares hosts: network cards, RDMA protocols, and the interfaces over which hosts reach others.
#include "doctor/checks/checks.h"

namespace weft::doctor::checks {
namespace {

// ---- across-cards: the same kind of card, driver and firmware on all hosts.

// Whether the interface is virtual or combines other interfaces.
bool IsVirtual(const NetDevice& device) {
    return Contains(device.name, ".") ||
           BeginsWithOneOf(device.name,
                           "bond team br docker virbr veth vlan tun tap wg podman cni lxc vxlan "
                           "macvlan dummy");
}

// The host's fastest interface that is up; null: unknown.
const NetDevice* FastestCard(HostView& view) {
    const NetDevice* fastest = nullptr;
    for (const NetDevice& device : NetDevices(view)) {
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

// Groups of drivers by vendor. Cards of one vendor understand each other's settings.
std::string VendorOf(const std::string& driver) {
    if (driver.starts_with("mlx")) return "NVIDIA (Mellanox)";
    if (IsOneOf(driver, "ice i40e ixgbe igc")) return "Intel";
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

// A port that hosts would use, and its host.
struct OwnedPort {
    HostView& view;
    const RdmaPort& port;
};

// The command that sets one of two ports to the protocol of the other port. It prefers InfiniBand
// if most hosts have InfiniBand and the Ethernet port supports it.
std::string ProtocolCure(const OwnedPort& ethernet, const OwnedPort& infiniband,
                         bool most_infiniband) {
    for (const bool to_infiniband : {most_infiniband, !most_infiniband}) {
        const OwnedPort& changed = to_infiniband ? ethernet : infiniband;
        if (!CanSpeak(ethernet.view, ethernet.port, to_infiniband) ||
            !CanSpeak(infiniband.view, infiniband.port, to_infiniband)) {
            continue;
        }
        const bool both_up = ethernet.port.active() && infiniband.port.active();
        const char* kind = to_infiniband ? "InfiniBand" : "Ethernet";
        return fmt::format("on {}: {}; {}{}or --transport tcp", changed.view.host(),
                           SetLinkType(changed.view, changed.port, to_infiniband),
                           both_up ? fmt::format("connect it to the {} switch; ", kind) : "",
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
    const Protocols one = ProtocolsOf(RdmaPorts(a)), two = ProtocolsOf(RdmaPorts(b));
    if (one.names.empty() || two.names.empty()) return false;
    for (const std::string& name : one.names) {
        if (IsIn(two.names, name)) return false;
    }
    const OwnedPort left{a, *one.port}, right{b, *two.port};
    const bool swap = one.port->infiniband();
    const bool differ = one.port->infiniband() != two.port->infiniband();
    const std::string fix =
        differ ? ProtocolCure(swap ? right : left, swap ? left : right, most_infiniband)
               : "set both to RoCE (rdma-device has the commands), or --transport tcp";
    Report<found::kProtocolsDiffer>(out, Joined(one.names), a.host(), one.port->Text(),
                                    Joined(two.names), b.host(), two.port->Text(), fix);
    return true;
}

// Asks what it costs the host with the fastest card that the slowest card limits the link.
void EstimateSlowestCost(Hosts hosts, Findings& out) {
    std::optional<HostLink> slow, fast;
    HostView* owner = nullptr;
    for (const auto& host : hosts) {
        const NetDevice* card = FastestCard(*host);
        const auto link = card == nullptr ? std::nullopt : PortLink(*card);
        if (!link) continue;
        if (!slow || link->gigabits < slow->gigabits) slow = link;
        if (fast && link->gigabits <= fast->gigabits) continue;
        fast = link;
        owner = host.get();
    }
    if (owner != nullptr) out.EstimateCost(LinkQuestion(*owner, *slow, *fast));
}

// ---- across-route: the interfaces over which hosts reach each other.

struct Host {
    HostView* view = nullptr;
    std::string name;
    const NetDevice* fastest = nullptr;  // among those that are up
};

// The route of packets from `from` to `device` of another host; null: none.
const Route* RouteToDevice(const Host& from, const NetDevice& device) {
    for (const Ipv4& address : device.addresses) {
        const Route* route = address.IsLoopback() ? nullptr : RouteTo(*from.view, address);
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
            const Route* route = RouteTo(*from.view, other);
            const bool direct = route != nullptr && !route->has_gateway;
            if (mine.prefix <= other.prefix || mine.prefix >= 31 || direct || other.IsLinkLocal() ||
                !wide.Shares(other) || narrow.Shares(mine)) {
                continue;
            }
            Report<found::kNetmasksDiffer>(
                out, mine.PrefixText(), own.name, from.name, other.PrefixText(), far.name, to.name,
                ShellWord(from.name), mine.Text(), other.prefix, ShellWord(own.name), mine.prefix);
            return true;
        }
    }
    return false;
}

// Whether `from` connected to one of the device's addresses while the doctor ran (doctor/reach.h).
bool Connected(const Host& from, const NetDevice& device) {
    const Reading outcomes = from.view->Probe("reach");
    return std::ranges::any_of(WordLines(outcomes.text), [&](const auto& words) {
        return words.size() >= 3 && words[2] == "open" &&
               std::ranges::find(device.addresses, words[0], &Ipv4::Text) != device.addresses.end();
    });
}

bool IsWsl(const Host& host) {
    return HasTag(*host.view, "wsl") || Contains(KernelRelease(*host.view), "WSL");
}

bool HasVpn(const Host& host) {
    return std::ranges::any_of(NetDevices(*host.view), [](const NetDevice& device) {
        const bool shared = std::ranges::any_of(device.addresses, &Ipv4::IsShared);
        return !device.addresses.empty() && (IsVpn(device.name) || (shared && !device.physical));
    });
}

// Whether NAT is likely between two hosts that reach each other only over default routes. own, far:
// the hosts' addresses.
bool HasSignOfNat(const Host& from, const Ipv4& own, const Host& to, const Ipv4& far) {
    return IsWsl(from) || IsWsl(to) || own.IsHome() || far.IsHome() ||
           own.IsPrivate() != far.IsPrivate() || (HasVpn(from) && HasVpn(to));
}

// Whether the hosts have one gateway (of a pod network, for example), or have connected.
bool AreJoined(const Host& from, const Route& route, const Host& to, const Route& back) {
    const bool one = !route.gateway.empty() && route.gateway == back.gateway;
    return (one && !IsWsl(from) && !IsWsl(to)) || Connected(from, *to.fastest);
}

void CheckRoute(const Host& from, const Host& to, Findings& out) {
    if (from.fastest == nullptr || to.fastest == nullptr) return;
    const NetDevice &own = *from.fastest, &far = *to.fastest;
    if (!own.addressed || !far.addressed) return;
    const std::string expected =
        fmt::format("{} reaches {} by {} ({})", from.name, to.name, own.name, own.SpeedText());
    if (far.addresses.empty() || own.addresses.empty()) {
        const Host& bare = far.addresses.empty() ? to : from;
        return Report<found::kCardNoAddress>(out, expected, bare.name, bare.fastest->name,
                                             bare.fastest->SpeedText(), ShellWord(bare.name),
                                             AddAddress(*bare.view, bare.fastest->name));
    }
    const Route* route = RouteToDevice(from, far);
    const NetDevice* device = route == nullptr ? nullptr : FindNetDevice(*from.view, route->device);
    const Ipv4 &mine = own.addresses.front(), &address = far.addresses.front();
    const double possible = std::min(own.megabits, far.megabits);
    const bool fine =
        device == nullptr || device->megabits >= possible * 0.99 || device->megabits <= 0;
    if (fine && CheckNetmasks(from, to, out)) return;
    if (device == nullptr) {
        return Report<found::kNoRoute>(out, expected, from.name, address.Text(), far.name, to.name);
    }
    const auto leaves = [](const Route* one) {
        return one != nullptr && one->to.prefix == 0 && one->has_gateway;
    };
    const Route* back = RouteToDevice(to, own);
    // The hosts reach each other only over default routes.
    if (fine && leaves(route) && leaves(back) && !AreJoined(from, *route, to, *back)) {
        return HasSignOfNat(from, mine, to, address)
                   ? Report<found::kOnlyDefaultRoute>(out, expected, from.name, address.Text(),
                                                      far.name, to.name)
                   : Report<found::kRouted>(out, expected, from.name, address.Text(), far.name,
                                            to.name);
    }
    ReportUnless<found::kSlowRoute>(fine, out, expected, from.name, address.Text(), far.name,
                                    to.name, device->name, device->SpeedText(),
                                    device->megabits / 8000, possible / 8000, ShellWord(own.name),
                                    ShellWord(from.name), address.PrefixText(), ShellWord(far.name),
                                    ShellWord(to.name), mine.Text());
    if (fine) return;
    if (const auto slow = PortLink(*device)) {
        out.EstimateCost(LinkQuestion(*from.view, *slow, FastLink(from, possible)));
    }
}

// Another interface over this one, such as a VLAN, has the addresses.
bool CarriesAddresses(const Host& host, const NetDevice& device) {
    return device.addresses.empty() &&
           std::ranges::any_of(NetDevices(*host.view), [&](const NetDevice& one) {
               return one.lower == device.name && one.up && !one.addresses.empty();
           });
}

// Reports fastest interfaces of two hosts that share a subnet but are on different VLANs. known:
// the pair is already reported.
bool CheckVlans(const Host& a, const Host& b, bool known, Findings& out) {
    if (a.fastest == nullptr || b.fastest == nullptr) return false;
    const auto one = a.fastest->VlanId(), two = b.fastest->VlanId();
    if (!one || !two || *one == *two) return false;
    for (const Ipv4& mine : a.fastest->addresses) {
        for (const Ipv4& other : b.fastest->addresses) {
            if (!mine.Shares(other)) continue;
            if (known) return true;
            Report<found::kVlansDiffer>(out, mine.PrefixText(), a.fastest->name, a.name, *one,
                                        other.PrefixText(), b.fastest->name, b.name, *two);
            return true;
        }
    }
    return false;
}

// A host's addresses on Thunderbolt cables, without those with a route per address.
std::vector<Ipv4> CableAddresses(const Host& host) {
    std::vector<Ipv4> addresses;
    for (const NetDevice& device : NetDevices(*host.view)) {
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
            if (mine.Shares(other)) return;
        }
    }
    Report<found::kCableSubnets>(out, one.front().PrefixText(), a.name, two.front().PrefixText(),
                                 b.name, ShellWord(b.name));
}

}  // namespace

void AcrossCards(Hosts hosts, Findings& out) {
    HostGroups vendors, drivers, firmware, speeds;
    for (const auto& host : hosts) {
        const NetDevice* card = FastestCard(*host);
        if (card == nullptr && !NetDevices(*host).empty()) continue;
        const std::string driver = card == nullptr ? DriverByPci(*host) : card->driver;
        if (driver.empty()) continue;
        vendors[VendorOf(driver)].push_back(host->host());
        drivers[driver].push_back(host->host());
        if (card == nullptr) continue;
        if (!card->firmware.empty()) firmware[card->firmware].push_back(host->host());
        if (card->megabits > 0) speeds[card->SpeedText()].push_back(host->host());
    }
    if (speeds.size() > 1) {
        Report<found::kSpeedsDiffer>(out, TextOf(speeds));
        EstimateSlowestCost(hosts, out);
    }
    if (vendors.size() > 1) {
        const bool rdma =
            std::ranges::any_of(hosts, [](const auto& host) { return HasRdma(*host); });
        if (rdma) Report<found::kVendorsDifferRdma>(out, TextOf(vendors));
        if (!rdma) Report<found::kVendorsDiffer>(out, TextOf(vendors));
    } else if (drivers.size() > 1) {
        Report<found::kDriversDiffer>(out, TextOf(drivers));
    } else if (firmware.size() > 1) {
        Report<found::kFirmwareDiffers>(out, TextOf(firmware));
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
        known.push_back({view.get(), view->host()});
    }
    for (Host& host : known) {
        for (const NetDevice& device : NetDevices(*host.view)) {
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
            if (&from == &to) continue;
            const bool apart = CheckVlans(from, to, &from > &to, out);
            if (!apart && !Routes(*from.view).empty()) CheckRoute(from, to, out);
        }
    }
}

}  // namespace weft::doctor::checks
