// Checks networks of a host: subnets, TCP settings, bonds, Thunderbolt cables, RoCE flow control.
#include "doctor/checks/checks.h"

namespace weft::doctor::checks {
namespace {

// ---- net-subnet: two interfaces in one subnet: the kernel sends by the first, whatever the cable.

// Moves the faster interface to another subnet, because users reach the host by the other one.
std::string SubnetFix(HostView& view, const NetDevice& i, const Ipv4& a, const NetDevice& j,
                      const Ipv4& b) {
    const bool first = i.megabits > j.megabits || j.wireless;
    const Ipv4& own = first ? a : b;
    const NetDevice& moved = first ? i : j;
    return fmt::format("move {0} to another subnet: sudo ip addr del {1}/{2} dev {0}; {3}",
                       ShellWord(moved.name), own.Text(), own.prefix, AddAddress(view, moved.name));
}

// Two PCIe functions of one port, as in a DGX Spark: enp1s0f0np0 and enP2p1s0f0np0.
bool AreTwins(const NetDevice& a, const NetDevice& b) {
    constexpr size_t kDomain = 4;
    return a.pci.size() == 12 && b.pci.size() == 12 &&
           a.pci.substr(kDomain) == b.pci.substr(kDomain) && a.pci != b.pci;
}

void CheckSubnets(HostView& view, const NetDevice& i, const NetDevice& j, Findings& out) {
    // A laptop is often in one network by cable and by Wi-Fi.
    const bool harmless = i.wireless || j.wireless || AreTwins(i, j);
    const auto text = [](const NetDevice& device, const Ipv4& address) {
        return fmt::format("{} ({}, {})", device.name, address.PrefixText(), device.SpeedText());
    };
    for (const Ipv4& a : i.addresses) {
        for (const Ipv4& b : j.addresses) {
            // Each interface may have its own link-local address.
            if (!a.Shares(b) || a.prefix >= 31 || a.IsLinkLocal() || out.Count() > 8) continue;
            ReportAs<found::kSubnetShared>(harmless ? kNote : kWarn, out, text(i, a), text(j, b),
                                           SubnetFix(view, i, a, j, b));
        }
    }
}

// ---- bond-mode: bonds of several links under RDMA and TCP.

// Names in sysfs and in /proc/net/bonding (drivers/net/bonding/bond_main.c).
struct BondMode {
    std::string_view name, long_name;
    bool roce;  // drivers merge the cards' RDMA devices in this mode
};
constexpr BondMode kBondModes[] = {{"balance-rr", "load balancing (round-robin)", false},
                                   {"active-backup", "fault-tolerance (active-backup)", true},
                                   {"balance-xor", "load balancing (xor)", true},
                                   {"broadcast", "fault-tolerance (broadcast)", false},
                                   {"802.3ad", "IEEE 802.3ad Dynamic link aggregation", true},
                                   {"balance-tlb", "transmit load balancing", false},
                                   {"balance-alb", "adaptive load balancing", false}};

// RDMA devices belong to the bond or to one of its parts.
bool CarriesRdma(HostView& view, const std::string& bond, const std::vector<std::string>& parts) {
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!port.ethernet() || port.software()) continue;
        for (const std::string& name : RdmaInterfaces(view, port)) {
            if (name == bond || IsIn(parts, name)) return true;
        }
    }
    return !RdmaPorts(view).empty() && std::ranges::any_of(parts, [&](const std::string& name) {
        const NetDevice* device = FindNetDevice(view, name);
        return device != nullptr && device->driver.starts_with("mlx");
    });
}

void CheckBond(HostView& view, const std::string& bond, Findings& out) {
    const std::string folder = "sys/class/net/" + bond + "/bonding/";
    const std::string sysfs = view.Text(folder + "mode"), slaves = view.Text(folder + "slaves");
    const std::string proc = view.Text("proc/net/bonding/" + bond);
    const auto words = Words(sysfs);
    const auto mode = std::ranges::find_if(kBondModes, [&](const BondMode& one) {
        return (!words.empty() && words[0] == one.name) ||
               After(proc, "Bonding Mode:").starts_with(one.long_name);
    });
    if (mode == std::end(kBondModes)) return;
    std::vector<std::string> parts;
    for (std::string_view name : Words(slaves)) parts.emplace_back(name);
    for (std::string_view line : Lines(proc)) {
        const std::string_view part = After(line, "Slave Interface:");
        if (!part.empty() && !IsIn(parts, part)) parts.emplace_back(part);
    }
    const std::string name = ShellWord(bond), all = Joined(parts);
    auto active = Integer(view.Text(folder + "ad_num_ports"));
    if (!active) active = Integer(After(proc, "Number of ports:"));
    if (mode->name == "802.3ad" && active && static_cast<size_t>(*active) < parts.size()) {
        return Report<found::kBondNoPartner>(out, bond, mode->name, all, name, *active,
                                             parts.size());
    }
    if (!mode->roce && CarriesRdma(view, bond, parts)) {
        Report<found::kBondRdma>(out, bond, mode->name, all, name);
    } else {
        ReportAs<found::kBondOrder>(mode->name == "balance-rr" ? kNote : kOk, out, bond, mode->name,
                                    all, name);
    }
}

// ---- thunderbolt: networks over Thunderbolt and USB4 cables.

// The bridge that contains the device; "": none.
std::string BridgeOf(HostView& view, const NetDevice& device) {
    if (!device.master.empty() && !device.master.starts_with("bond")) return device.master;
    for (const std::string& name : view.List("sys/class/net")) {
        if (view.Has("sys/class/net/" + name + "/brif/" + device.name)) return name;
    }
    return view.List("sys/class/net/" + device.name + "/brport").empty() ? "" : "a bridge";
}

// Proxmox fabrics route over cables without addresses; the host's own address is a /32 on lo or a
// dummy interface.
bool IsUnnumbered(HostView& view, const NetDevice& device) {
    for (const Route& route : Routes(view)) {
        if (route.device == device.name && route.to.prefix == 32) return true;
    }
    for (const NetDevice& other : NetDevices(view)) {
        if (other.name.starts_with("dummy") &&
            std::ranges::find(other.addresses, 32, &Ipv4::prefix) != other.addresses.end()) {
            return true;
        }
    }
    const std::string json = CommandLike(view, "ip -j addr").text;
    const size_t lo = json.find("\"ifname\":\"lo\"");
    const size_t next = json.find("\"ifname\"", lo == json.npos ? lo : lo + 1);
    if (lo != json.npos && Contains(json.substr(lo, next - lo), "\"prefixlen\":32")) return true;
    return Contains(CommandLike(view, "ip addr").text, "/32 scope global lo");
}

void CheckThunderbolt(HostView& view, const NetDevice& device, Findings& out) {
    const std::string read = InterfaceText(device);
    // Desktops and installers often put all cables into one bridge.
    if (const std::string bridge = BridgeOf(view, device); !bridge.empty()) {
        const std::string name = ShellWord(device.name);
        Report<found::kCableInBridge>(out, read, bridge, name, AddAddress(view, device.name),
                                      Cure(view, "leave-bridge", {{"device", name}}));
    } else if (device.up && device.addresses.empty() && IsUnnumbered(view, device)) {
        out.Ok(read + ", routed without one");
    } else if ((!device.up && device.state_read) ||
               (device.addressed && device.addresses.empty())) {
        Report<found::kCableDown>(out, read, AddAddress(view, device.name));
    } else if (device.mtu > 0 && device.mtu < 9000) {
        Report<found::kCableMtu>(out, read, 65520.0 / device.mtu, SetMtu(view, device.name, 65520));
    } else {
        out.Ok(read);
    }
}

// Modules outside of the kernel that make a cable an RDMA device.
void CheckCableRdma(HostView& view, Findings& out) {
    const bool ibverbs = view.Has("sys/module/thunderbolt_ibverbs");
    if (!ibverbs && !view.Has("sys/module/odl_tb5")) return;
    for (const RdmaPort& port : RdmaPorts(view)) {
        // (Such a device belongs to no PCI card.)
        if (!port.pci.empty() || port.software()) continue;
        return ReportOk(out, "RDMA device {} over the cable", port.device);
    }
    if (ibverbs) {
        Report<found::kCableRdmaIdle>(out);
    } else {
        Report<found::kCableNoVerbs>(out);
    }
}

// Whether the Thunderbolt device is another host: hosts have a service of their own; docks and
// drives do not carry a network.
bool IsCableToHost(HostView& view, const std::string& path) {
    const std::string name = BaseName(path);
    return view.Has(path + "/" + name + ".0") || view.Has(path + "/" + name + ".1") ||
           view.Has(path + ".0") || view.Has(path + "/maxhopid");
}

// Without its module, a cable has no interface, so nothing else in the system shows it.
void CheckCableModule(HostView& view, Findings& out) {
    const std::string folder = "sys/bus/thunderbolt/devices";
    if (view.Has("sys/module/thunderbolt_net") || view.Has("sys/module/thunderbolt_ibverbs") ||
        view.Has("sys/module/odl_tb5") || (!view.Complete() && view.List("sys/module").empty())) {
        return;
    }
    for (const std::string& name : view.List(folder)) {
        if (!IsCableToHost(view, folder + "/" + name)) continue;
        return Report<found::kCableNoModule>(out, name);
    }
}

// A link to another host is an entry like "0-1", with rx_speed "20.0 Gb/s" and rx_lanes "2".
void CheckCableLinks(HostView& view, Findings& out) {
    constexpr double kFullGigabits = 40;  // two lanes of 20 Gb/s
    const std::string folder = "sys/bus/thunderbolt/devices";
    for (const std::string& name : view.List(folder)) {
        const std::string path = folder + "/" + name;
        const auto speed = LeadingNumber(view.Text(path + "/rx_speed"));
        const auto lanes = LeadingNumber(view.Text(path + "/rx_lanes"));
        if (!speed || !lanes || !IsCableToHost(view, path)) continue;
        const double gigabits = *speed * *lanes;
        const bool fine = gigabits >= kFullGigabits;
        ReportUnless<found::kCableSlow>(fine, out, name, *speed, *lanes, gigabits / 8,
                                        kFullGigabits / 8);
        if (fine || gigabits <= 0) continue;
        HostLink actual{.kind = plan::LinkKind::kThunderbolt, .gigabits = gigabits};
        HostLink expected{.kind = plan::LinkKind::kThunderbolt, .gigabits = kFullGigabits};
        out.EstimateCost(LinkQuestion(view, actual, expected));
    }
}

// ---- roce-flow-control: without flow control, RoCE loses packets as soon as two hosts send to
// one.

constexpr int kRoceDscp = 26;

struct FlowControl {
    bool rx_pause = false, tx_pause = false;
    bool any_read = false;     // some setting was read
    std::set<int> priorities;  // with PFC
    int roce_priority = -1;    // priority of RoCE packets by their DSCP; -1: unknown
};

// "prio-pfc 0:off 1:off 2:off 3:on ..." from `dcb pfc show` (iproute2), "26:3" from `dcb app show`.
template <typename Each>
void EachPair(std::string_view line, Each&& each) {
    for (std::string_view word : Words(line)) {
        const size_t colon = word.find(':');
        if (colon == word.npos) continue;
        const auto number = Integer(word.substr(0, colon));
        if (number) each(static_cast<int>(*number), word.substr(colon + 1));
    }
}

// "Enabled: 3" or "enabled: 3,4" from lldptool and from Broadcom's bnxtqos and niccli.
void ReadPriorities(std::string_view text, std::string_view key, FlowControl& flow) {
    for (std::string_view word : Split(After(text, key), ',')) {
        const auto priority = Integer(word);
        if (priority && *priority >= 0 && *priority < 8) {
            flow.priorities.insert(static_cast<int>(*priority));
        }
    }
}

FlowControl ReadFlowControl(HostView& view, const std::string& name) {
    FlowControl flow;
    const Reading pause = view.Command("ethtool -a " + name);
    flow.rx_pause = After(pause.text, "RX:") == "on";
    flow.tx_pause = After(pause.text, "TX:") == "on";
    // "PFC configuration: ... enabled   0 0 0 1 0 0 0 0"
    const Reading mlnx = view.Command("mlnx_qos -i " + name);
    const auto enabled = Words(After(mlnx.text, "enabled "));
    for (size_t i = 0; i < std::min<size_t>(enabled.size(), 8); ++i) {
        if (enabled[i] == "1") flow.priorities.insert(static_cast<int>(i));
    }
    const Reading dcb = view.Command("dcb pfc show dev " + name);
    EachPair(After(dcb.text, "prio-pfc "), [&](int priority, std::string_view state) {
        if (state == "on") flow.priorities.insert(priority);
    });
    const Reading app = view.Command("dcb app show dev " + name);
    EachPair(After(app.text, "dscp-prio "), [&](int dscp, std::string_view priority) {
        if (dscp != kRoceDscp) return;
        flow.roce_priority = static_cast<int>(Integer(priority).value_or(-1));
    });
    flow.any_read = pause.found() || mlnx.found() || dcb.found();
    if (view.Complete()) return flow;
    const Reading lldp = CommandLike(view, "lldptool -t -i " + name + " -V PFC");
    ReadPriorities(lldp.text, "Enabled:", flow);
    for (const char* command : {"bnxtqos", "niccli"}) {
        ReadPriorities(CommandLike(view, command).text, "PFC enabled:", flow);
    }
    flow.any_read = flow.any_read || lldp.found();
    return flow;
}

void CheckFlowControl(const std::string& name, bool broadcom, const FlowControl& flow,
                      Findings& out) {
    const bool pfc = !flow.priorities.empty();
    const std::string read =
        fmt::format("{}: pause frames rx {}, tx {}{}", name, flow.rx_pause ? "on" : "off",
                    flow.tx_pause ? "on" : "off",
                    pfc ? ", PFC on for priority " + ListText(flow.priorities) : "");
    const std::string device = ShellWord(name);
    if (pfc && flow.roce_priority >= 0 && !flow.priorities.contains(flow.roce_priority)) {
        Report<found::kRocePriority>(out, read, kRoceDscp, flow.roce_priority, device,
                                     *flow.priorities.begin());
    } else if (pfc || (flow.rx_pause && flow.tx_pause)) {
        out.Ok(read);
    } else if (broadcom) {
        Report<found::kRocePfcOff>(out, read, device, kRoceDscp);
    } else {
        Report<found::kRocePauseOff>(out, read, device);
    }
}

}  // namespace

void RunNetSubnet(HostView& view, Findings& out) {
    const std::vector<NetDevice>& devices = NetDevices(view);
    for (size_t i = 0; i < devices.size(); ++i) {
        for (size_t j = i + 1; j < devices.size(); ++j) {
            if (devices[i].up && devices[j].up) CheckSubnets(view, devices[i], devices[j], out);
        }
    }
    const Reading addresses = CommandLike(view, "ip -j addr");
    if (!addresses.found() && !devices.empty() &&
        std::ranges::none_of(devices, &NetDevice::addressed)) {
        return Report<found::kAddressesUnread>(
            out, devices.size(), addresses.refused() ? ": " + addresses.text : " is not installed",
            view.Complete() ? Cure(view, "iproute") + " (5.0 or newer)"
                            : "save the output of 'ip -j addr' in the snapshot");
    }
    const bool any = std::ranges::any_of(
        devices, [](const NetDevice& device) { return !device.addresses.empty(); });
    if (any && out.empty()) out.Ok("each interface is in a subnet of its own");
}

// ---- tcp-settings: TCP settings that limit fast links.

void RunTcpSettings(HostView& view, Findings& out) {
    constexpr double kRoundTripSeconds = 0.5e-3;  // through a busy host
    // minimum, default, maximum
    const std::string window = view.Text("proc/sys/net/ipv4/tcp_rmem");
    const auto words = Words(window);
    if (words.size() != 3) return;
    const auto most = Number(words[2]);
    double fastest = 0;
    for (const NetDevice& device : NetDevices(view)) {
        if (device.physical && device.up) fastest = std::max(fastest, device.megabits);
    }
    const double needed = fastest * 1e6 / 8 * kRoundTripSeconds;
    const std::string read = fmt::format("{}", fmt::join(words, " "));
    if (most && *most < needed) {
        Report<found::kTcpWindow>(out, read, needed, *most / kRoundTripSeconds * 1e-9,
                                  fastest / 8000,
                                  SetSysctl(view,
                                            "net.core.rmem_max=67108864\n"
                                            "net.core.wmem_max=67108864\n"
                                            "net.ipv4.tcp_rmem=4096 131072 67108864\n"
                                            "net.ipv4.tcp_wmem=4096 65536 67108864"));
    }
    if (view.Text("proc/sys/net/ipv4/tcp_timestamps") == "0" &&
        view.Text("proc/sys/net/ipv4/tcp_sack") == "0") {
        Report<found::kTcpSackOff>(out, SetSysctl(view, "net.ipv4.tcp_sack=1"));
    }
    if (out.empty()) ReportOk(out, "net.ipv4.tcp_rmem = {}", read);
}

void RunBondMode(HostView& view, Findings& out) {
    std::vector<std::string> bonds = view.List("proc/net/bonding");
    for (const std::string& name : view.List("sys/class/net")) {
        const bool bond = view.Has("sys/class/net/" + name + "/bonding");
        if (bond && !IsIn(bonds, name)) bonds.push_back(name);
    }
    for (const std::string& bond : bonds) CheckBond(view, bond, out);
}

void RunThunderbolt(HostView& view, Findings& out) {
    bool any = false;
    for (const NetDevice& device : NetDevices(view)) {
        if (!device.name.starts_with("thunderbolt") &&
            !IsOneOf(device.driver, "thunderbolt-net thunderbolt_net")) {
            continue;
        }
        any = true;
        CheckThunderbolt(view, device, out);
    }
    if (any) CheckCableLinks(view, out);
    if (!any) CheckCableModule(view, out);
    CheckCableRdma(view, out);
}

// The other hosts may be phones or laptops, not ranks; across-path warns of ranks.
void RunVpnRelay(HostView& view, Findings& out) {
    const std::set<std::string>& relayed = RelayedAddresses(view);
    if (!relayed.empty()) return Report<found::kVpnRelayed>(out, ListText(relayed));
    if (TailscaleStatus(view).found()) out.Ok("Tailscale relays to no host");
}

void RunRoceFlowControl(HostView& view, Findings& out) {
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!port.ethernet() || !port.active() || port.software()) continue;
        for (const std::string& name : RdmaInterfaces(view, port)) {
            // A VLAN has the settings of the interface below it.
            if (!IsPlainName(name) || Contains(name, ".")) continue;
            const FlowControl flow = ReadFlowControl(view, name);
            if (!flow.any_read) continue;
            const NetDevice* device = FindNetDevice(view, name);
            const bool broadcom = port.device.starts_with("bnxt") ||
                                  (device != nullptr && device->driver.starts_with("bnxt"));
            CheckFlowControl(name, broadcom, flow, out);
        }
    }
}

}  // namespace weft::doctor::checks
