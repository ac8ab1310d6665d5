// Checks InfiniBand: subnet managers and IP over InfiniBand.
#include "doctor/checks/checks.h"
#include "doctor/network_text.h"

namespace weft::doctor::checks {
namespace {

// ---- ib-subnet-manager, ib-one-manager: exactly one active subnet manager, and its partitions.

bool IsManaged(const RdmaPort& port) {
    return port.link_layer == "InfiniBand" && port.physical != "Disabled" &&
           port.physical != "Polling" && port.state != "DOWN" && !port.no_guid && port.sm_lid;
}

std::string ManagerState(HostView& view) {
    const Reading state = view.Command("systemctl is-active opensm");
    return state.found() ? std::string(Trim(state.text)) : "";
}

// IPoIB interfaces of the hosts share a subnet, so the hosts should be on one fabric; or their
// addresses are unknown.
bool MayShareSubnet(Hosts hosts) {
    std::map<std::pair<uint32_t, int>, std::string> owners;
    for (const auto& host : hosts) {
        for (const NetDevice& device : NetDevices(*host)) {
            const std::string type = host->Text("sys/class/net/" + device.name + "/type");
            if (type.empty() ? !device.name.starts_with("ib") : type != "32") continue;
            for (const Ipv4& address : device.addresses) {
                const auto [owner, fresh] =
                    owners.try_emplace({address.network(), address.prefix}, host->host());
                if (!fresh && owner->second != host->host()) return true;
            }
        }
    }
    return owners.empty();
}

constexpr int64_t kPartitionNumber = 0x7fff;  // the highest bit is set for full members

std::optional<int64_t> PartitionOf(std::string_view pkey) {
    return Integer(pkey.starts_with("0x") ? pkey.substr(2) : pkey, 16);
}

// The partitions of the host's active InfiniBand ports, by number; true: as a full member.
using Partitions = std::map<int64_t, bool>;

Partitions PartitionsOf(HostView& view) {
    Partitions partitions;
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (port.path.empty() || !port.infiniband() || !port.active()) continue;
        for (const std::string& index : view.List(port.path + "/pkeys")) {
            const auto pkey = PartitionOf(view.Text(port.path + "/pkeys/" + index));
            if (!pkey || (*pkey & kPartitionNumber) == 0) continue;
            bool& full = partitions[*pkey & kPartitionNumber];
            full = full || *pkey > kPartitionNumber;
        }
    }
    return partitions;
}

// Reports two hosts that are limited members of all partitions that they share.
bool CheckMembers(HostView& a, const Partitions& one, HostView& b, const Partitions& two,
                  Findings& out) {
    std::optional<int64_t> shared;
    for (const auto& [number, full] : one) {
        const auto other = two.find(number);
        if (other == two.end()) continue;
        if (full || other->second) return false;
        if (!shared) shared = number;
    }
    if (!shared) return false;
    Report<found::kLimitedMembers>(
        b, out, a.host(), b.host(), *shared,
        *shared == kPartitionNumber ? "Default=0x7fff" : fmt::format("ranks={:#06x}", *shared));
    return true;
}

// ---- ib-manager-log: SELinux denies the subnet manager its log file, so that it does not start.

// "avc: denied { open } for comm="opensm" path="/var/log/opensm.log" ... permissive=0"
std::string LogDenial(HostView& view) {
    for (const LogLine& line : KernelLogLines(KernelLog(view))) {
        if (Contains(line.lower, "avc:") && Contains(line.lower, "comm=\"opensm\"") &&
            !Contains(line.lower, "permissive=1")) {
            return line.raw;
        }
    }
    if (view.Complete()) return "";
    for (const std::string& name : view.List("cmd")) {
        const bool log = name.starts_with("ausearch") || name.starts_with("journalctl") ||
                         name.starts_with("systemctl_status_opensm");
        const std::string text = log ? view.Text("cmd/" + name) : "";
        for (std::string_view line : Lines(text)) {
            if (!Contains(line, "opensm") || Contains(line, "permissive=1")) continue;
            if (Contains(line, "avc:") ||
                (Contains(line, "ermission denied") && Contains(line, "/var/log/opensm.log"))) {
                return std::string(line.substr(0, 200));
            }
        }
    }
    return "";
}

// "system_u:object_r:var_log_t:s0 /var/log/opensm.log" -> "var_log_t".
std::string LabelOfLog(HostView& view) {
    const Reading listed = CommandLike(view, "ls -Z /var/log/opensm.log");
    for (std::string_view word : Words(listed.text)) {
        const auto parts = Split(word, ':');
        if (parts.size() >= 3 && parts[2].ends_with("_t")) return std::string(parts[2]);
    }
    return "";
}

// ---- ib-ipoib: IP over InfiniBand, over which hosts find each other before RDMA starts.

// rails: the host has several InfiniBand ports, and hosts find each other over another network.
void CheckIpoib(HostView& view, const NetDevice& device, bool rails, Findings& out) {
    const std::string mode = view.Text("sys/class/net/" + device.name + "/mode");
    const std::string read = InterfaceText(device, ", mode " + (mode.empty() ? "unknown" : mode));
    const bool down = !device.up && device.state_read;
    const int small_mtu = mode == "connected" ? 4096 : mode == "datagram" ? 2043 : 0;
    if (down || (device.addressed && device.addresses.empty())) {
        ReportAs<found::kIpoibDown>(rails ? Severity::kNote : Severity::kWarn, view, out, read,
                                    AddAddress(view, device.name));
    } else if (device.mtu > 0 && device.mtu <= small_mtu) {
        const bool connected = mode == "connected";
        Report<found::kIpoibMtu>(
            view, out, read,
            connected ? "MTU 65520 in connected mode" : "MTU 2044 (4092 where the fabric allows)",
            connected ? "TCP sends packets of 2 KB: half of the speed or less"
                      : "TCP sends small packets",
            SetMtu(view, device.name, connected ? 65520 : 2044));
    } else {
        out.Ok(read);
    }
}

// The partition of "ib0.8001" must be in the table that the subnet manager gave the port. The
// highest bit distinguishes full from limited members.
void CheckPartition(HostView& view, const NetDevice& device, Findings& out) {
    const std::string text = view.Text("sys/class/net/" + device.name + "/pkey");
    const auto wanted = PartitionOf(text);
    if (!wanted) return;
    std::vector<std::string> table;
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (port.path.empty() || !port.active()) continue;
        for (const std::string& index : view.List(port.path + "/pkeys")) {
            const std::string pkey = view.Text(port.path + "/pkeys/" + index);
            const auto value = PartitionOf(pkey);
            if (!value || *value == 0) continue;
            if ((*value & kPartitionNumber) == (*wanted & kPartitionNumber)) return;
            table.push_back(pkey);
        }
    }
    if (!table.empty()) {
        Report<found::kIpoibPartition>(view, out, device.name, text, Joined(table));
    }
}

bool IsInUse(const NetDevice& device) {
    return device.up && (!device.addressed || !device.addresses.empty());
}

// Interfaces of type ARPHRD_INFINIBAND.
std::vector<NetDevice> IpoibDevices(HostView& view, const std::vector<NetDevice>& all) {
    std::vector<NetDevice> found;
    for (const NetDevice& device : all) {
        const std::string type = view.Text("sys/class/net/" + device.name + "/type");
        const bool named =
            device.name.starts_with("ib") ||
            (!view.Complete() && SaysInfiniband(CommandLike(view, "ip addr").text, device.name));
        if (type.empty() ? named : type == "32") found.push_back(device);
    }
    return found;
}

}  // namespace

void RunIbSubnetManager(HostView& view, Findings& out) {
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!IsManaged(port)) continue;
        const bool managed = *port.sm_lid != 0 && port.lid.value_or(1) != 0;
        ReportAs<found::kNoManager>(managed ? Severity::kOk : Severity::kFail, view, out,
                                    port.Text(), port.lid.value_or(0), *port.sm_lid, port.state,
                                    managed ? "" : StartManager(view, port));
    }
}

void AcrossIbSubnetManager(Hosts hosts, Findings& out) {
    std::vector<std::string> managers, lids;
    std::set<int64_t> masters;
    for (const auto& host : hosts) {
        const size_t before = lids.size();
        for (const RdmaPort& port : RdmaPorts(*host)) {
            if (!IsManaged(port) || *port.sm_lid == 0) continue;
            lids.push_back(fmt::format("{} sm_lid {}", host->host(), *port.sm_lid));
            masters.insert(*port.sm_lid);
        }
        if (lids.size() > before && ManagerState(*host) == "active") {
            managers.push_back(host->host());
        }
    }
    if (lids.empty()) return;
    HostView& view = *hosts.front();
    bool limited = !MayShareSubnet(hosts);  // ports of separate fabrics
    std::vector<Partitions> partitions;
    for (const auto& host : hosts) partitions.push_back(PartitionsOf(*host));
    for (size_t a = 0; a < hosts.size(); ++a) {
        for (size_t b = a + 1; b < hosts.size() && !limited; ++b) {
            limited = CheckMembers(*hosts[a], partitions[a], *hosts[b], partitions[b], out);
        }
    }
    if (masters.size() > 1 && managers.size() > 1 && MayShareSubnet(hosts)) {
        Report<found::kTwoManagers>(view, out, Joined(managers), Joined(lids));
    } else if (masters.size() > 1) {
        Report<found::kTwoFabrics>(view, out, Joined(lids));
    } else {
        ReportOk(out, "{}{}", Joined(lids),
                 managers.size() > 1 ? "; one master, the others stand by" : "");
    }
}

void RunIbManagerLog(HostView& view, Findings& out) {
    if (const std::string denial = LogDenial(view); !denial.empty()) {
        const std::string state = ManagerState(view);
        return ReportAs<found::kManagerLog>(
            state == "active" ? Severity::kWarn : Severity::kFail, view, out,
            fmt::format("opensm is {}", state.empty() ? "denied" : state), denial);
    }
    const std::string label = LabelOfLog(view);
    if (label.empty()) return;
    const Reading enforce = view.Command("getenforce");
    const bool lets = Contains(enforce.text, "Permissive") || Contains(enforce.text, "Disabled");
    ReportAs<found::kManagerLog>(label == "opensm_log_t" ? Severity::kOk
                                 : lets                  ? Severity::kNote
                                                         : Severity::kWarn,
                                 view, out, "/var/log/opensm.log", label);
}

void RunIbIpoib(HostView& view, Findings& out) {
    const auto active = std::ranges::count_if(
        RdmaPorts(view), [](const RdmaPort& port) { return port.infiniband() && port.active(); });
    if (active == 0) return;
    const std::vector<NetDevice> all = NetDevices(view), devices = IpoibDevices(view, all);
    const bool rails = active > 1 && std::ranges::any_of(all, [&](const NetDevice& device) {
                           return FindNetDevice(devices, device.name) == nullptr && device.up &&
                                  !device.addresses.empty() && !IsOfContainers(device.name);
                       });
    const auto used = std::ranges::count_if(devices, IsInUse);
    for (const NetDevice& device : devices) {
        // An interface without a cable is down; that is fine.
        if (IsInUse(device) || used < active) CheckIpoib(view, device, rails, out);
        CheckPartition(view, device, out);
    }
    if (!devices.empty() || all.empty()) return;
    if (view.List("sys/class/net").empty() && !view.Complete()) return;
    ReportAs<found::kIpoibAbsent>(rails ? Severity::kNote : Severity::kWarn, view, out);
}

}  // namespace weft::doctor::checks
