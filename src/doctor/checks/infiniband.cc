// Checks InfiniBand: subnet managers and IP over InfiniBand.
#include "doctor/checks/checks.h"

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

// Whether the hosts should be on one fabric: their IPoIB interfaces share a subnet, or the
// addresses are unknown.
bool MayShareSubnet(Hosts hosts) {
    std::map<std::pair<uint32_t, int>, std::string> owners;
    for (const auto& host : hosts) {
        for (const NetDevice& device : NetDevices(*host)) {
            if (!IsIpoib(*host, device, device.name.starts_with("ib"))) continue;
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

// A line of the table of partitions that the subnet manager gave a port.
struct Partition {
    std::string text;  // "0x8001"
    int64_t key = 0;
    int64_t number() const { return key & kPartitionNumber; }
    bool full() const { return key > kPartitionNumber; }
};

// The partitions of the host's active ports.
std::vector<Partition> PartitionsOf(HostView& view, bool infiniband_only) {
    std::vector<Partition> partitions;
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (port.path.empty() || !port.active()) continue;
        if (infiniband_only && !port.infiniband()) continue;
        for (const std::string& index : view.List(port.path + "/pkeys")) {
            const std::string text = view.Text(port.path + "/pkeys/" + index);
            const auto key = Integer(text, 16);
            if (key && *key != 0) partitions.push_back({text, *key});
        }
    }
    return partitions;
}

// Makes all ports full members of a partition other than the default one.
std::string AddPartition(HostView& view, int64_t number) {
    const std::string line = fmt::format("ranks={:#06x}", number | (kPartitionNumber + 1));
    return Cure(view, "partitions", {{"value", Cure(view, "other-partition", {{"value", line}})}});
}

// Reports two hosts that are limited members of all partitions that they share.
bool CheckMembers(HostView& a, HostView& b, Findings& out) {
    const auto one = PartitionsOf(a, true), two = PartitionsOf(b, true);
    std::optional<int64_t> shared;
    for (const Partition& mine : one) {
        for (const Partition& other : two) {
            if (mine.number() == 0 || mine.number() != other.number()) continue;
            if (mine.full() || other.full()) return false;
            shared = std::min(shared.value_or(mine.number()), mine.number());
        }
    }
    if (!shared) return false;
    Report<found::kLimitedMembers>(
        out, a.host(), b.host(), *shared,
        *shared == kPartitionNumber
            ? Cure(a, "partitions", {{"value", Cure(a, "default-partition")}})
            : AddPartition(a, *shared));
    return true;
}

// ---- ib-manager-log: SELinux denies the subnet manager its log file, so that it does not start.

// "avc: denied { open } for comm="opensm" path="/var/log/opensm.log" ... permissive=0"
std::string LogDenial(HostView& view) {
    for (const LogLine& line : KernelLogLines(view)) {
        if (Contains(line.lower, "avc:") && Contains(line.lower, "comm=\"opensm\"") &&
            !Contains(line.lower, "permissive=1")) {
            return line.raw;
        }
    }
    if (view.Complete()) return "";
    for (const std::string& name : view.List("cmd")) {
        if (!BeginsWithOneOf(name, "ausearch journalctl systemctl_status_opensm")) continue;
        const std::string text = view.Text("cmd/" + name);
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

// The type of a file's label: "system_u:object_r:var_log_t:s0 /var/log/opensm.log" -> "var_log_t".
std::string LabelOfLog(HostView& view) {
    const Reading listed = CommandLike(view, "ls -Z /var/log/opensm.log");
    for (std::string_view word : Words(listed.text)) {
        const auto parts = Split(word, ':');
        if (parts.size() >= 3 && parts[2].ends_with("_t")) return std::string(parts[2]);
    }
    return "";
}

// ---- ib-ipoib: IP over InfiniBand, over which hosts find each other before RDMA starts.

// rails: the host has several InfiniBand ports, and ranks find each other over another network.
void CheckIpoib(HostView& view, const NetDevice& device, bool rails, Findings& out) {
    const std::string mode = view.Text("sys/class/net/" + device.name + "/mode");
    const std::string read = InterfaceText(device, ", mode " + (mode.empty() ? "unknown" : mode));
    const bool down = !device.up && device.state_read;
    const int small_mtu = mode == "connected" ? 4096 : mode == "datagram" ? 2043 : 0;
    if (down || (device.addressed && device.addresses.empty())) {
        ReportAs<found::kIpoibDown>(rails ? kNote : kWarn, out, read,
                                    AddAddress(view, device.name));
    } else if (device.mtu > 0 && device.mtu <= small_mtu) {
        const bool connected = mode == "connected";
        Report<found::kIpoibMtu>(
            out, read,
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
    const auto wanted = Integer(text, 16);
    if (!wanted) return;
    std::vector<std::string> table;
    for (const Partition& partition : PartitionsOf(view, false)) {
        if (partition.number() == (*wanted & kPartitionNumber)) return;
        table.push_back(partition.text);
    }
    if (!table.empty()) {
        Report<found::kIpoibPartition>(out, device.name, text, Joined(table),
                                       AddPartition(view, *wanted));
    }
}

bool IsInUse(const NetDevice& device) {
    return device.up && (!device.addressed || !device.addresses.empty());
}

std::vector<NetDevice> IpoibDevices(HostView& view) {
    std::vector<NetDevice> found;
    for (const NetDevice& device : NetDevices(view)) {
        const bool named =
            device.name.starts_with("ib") ||
            (!view.Complete() && IsInfiniband(CommandLike(view, "ip addr").text, device.name));
        if (IsIpoib(view, device, named)) found.push_back(device);
    }
    return found;
}

}  // namespace

void RunIbSubnetManager(HostView& view, Findings& out) {
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!IsManaged(port)) continue;
        const bool managed = *port.sm_lid != 0 && port.lid.value_or(1) != 0;
        ReportUnless<found::kNoManager>(managed, out, port.Text(), port.lid.value_or(0),
                                        *port.sm_lid, port.state,
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
    bool limited = !MayShareSubnet(hosts);  // ports of separate fabrics
    for (size_t a = 0; a < hosts.size(); ++a) {
        for (size_t b = a + 1; b < hosts.size() && !limited; ++b) {
            limited = CheckMembers(*hosts[a], *hosts[b], out);
        }
    }
    if (masters.size() > 1 && managers.size() > 1 && MayShareSubnet(hosts)) {
        Report<found::kTwoManagers>(out, Joined(managers), Joined(lids));
    } else if (masters.size() > 1) {
        Report<found::kTwoFabrics>(out, Joined(lids));
    } else {
        ReportOk(out, "{}{}", Joined(lids),
                 managers.size() > 1 ? "; one master, the others stand by" : "");
    }
}

void RunIbManagerLog(HostView& view, Findings& out) {
    if (const std::string denial = LogDenial(view); !denial.empty()) {
        const std::string state = ManagerState(view);
        return ReportAs<found::kManagerLog>(
            state == "active" ? kWarn : kFail, out,
            fmt::format("opensm is {}", state.empty() ? "denied" : state), denial);
    }
    const std::string label = LabelOfLog(view);
    if (label.empty()) return;
    const Reading enforce = view.Command("getenforce");
    const Severity bad = ContainsAny(enforce.text, "Permissive|Disabled") ? kNote : kWarn;
    ReportAs<found::kManagerLog>(label == "opensm_log_t" ? kOk : bad, out, "/var/log/opensm.log",
                                 label);
}

void RunIbIpoib(HostView& view, Findings& out) {
    const auto active = std::ranges::count_if(
        RdmaPorts(view), [](const RdmaPort& port) { return port.infiniband() && port.active(); });
    if (active == 0) return;
    const std::vector<NetDevice>& all = NetDevices(view);
    const std::vector<NetDevice> devices = IpoibDevices(view);
    const bool rails =
        active > 1 && std::ranges::any_of(all, [&](const NetDevice& device) {
            return device.up && !device.addresses.empty() && !IsOfContainers(device.name) &&
                   std::ranges::find(devices, device.name, &NetDevice::name) == devices.end();
        });
    const auto used = std::ranges::count_if(devices, IsInUse);
    for (const NetDevice& device : devices) {
        // An interface without a cable is down; that is fine.
        if (IsInUse(device) || used < active) CheckIpoib(view, device, rails, out);
        CheckPartition(view, device, out);
    }
    if (!devices.empty() || all.empty()) return;
    if (view.List("sys/class/net").empty() && !view.Complete()) return;
    ReportAs<found::kIpoibAbsent>(rails ? kNote : kWarn, out);
}

}  // namespace weft::doctor::checks
