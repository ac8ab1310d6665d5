// Checks IP over InfiniBand, over which hosts find each other before RDMA starts.
#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/network_text.h"
#include "doctor/rdma.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// rails: the host has several InfiniBand ports, and hosts find each other over another network.
void LookIbIpoib(HostView& view, const NetDevice& device, bool rails, Findings& out) {
    const std::string mode = view.Text("sys/class/net/" + device.name + "/mode");
    const std::string read = fmt::format("{}: {}, mode {}, MTU {}, {}", device.name,
                                         device.up           ? "up"
                                         : device.state_read ? "down"
                                                             : "state not read",
                                         mode.empty() ? "not known" : mode, device.mtu,
                                         !device.addresses.empty() ? device.addresses.front().Text()
                                         : device.addressed        ? "no IPv4 address"
                                                                   : "addresses not read");
    const bool down = !device.up && device.state_read;
    if (down || (device.addressed && device.addresses.empty())) {
        return out.Add(rails ? Severity::kNote : Severity::kWarn, read, "up, with an IPv4 address",
                       "hosts find each other, and choose the RDMA port, by its address: without "
                       "one the peer is reached by another network",
                       AddAddress(view, device.name));
    }
    if (mode == "connected" && device.mtu > 0 && device.mtu <= 4096) {
        return out.Note(read, "MTU 65520 in connected mode",
                        "TCP in packets of 2 KB: half of the speed or less",
                        SetMtu(view, device.name, 65520));
    }
    if (mode == "datagram" && device.mtu > 0 && device.mtu < 2044) {
        return out.Note(read, "MTU 2044 (4092 where the fabric allows)", "TCP in small packets",
                        SetMtu(view, device.name, 2044));
    }
    out.Ok(read);
}

// The partition of "ib0.8001" must be in the table that the subnet manager gave the port. The
// highest bit distinguishes full from limited members.
void LookAtPartition(HostView& view, const NetDevice& device, Findings& out) {
    constexpr int64_t kNumber = 0x7fff;
    const std::string text = view.Text("sys/class/net/" + device.name + "/pkey");
    const auto wanted = Integer(text.starts_with("0x") ? text.substr(2) : text, 16);
    if (!wanted) return;
    std::vector<std::string> table;
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (port.path.empty() || !port.active()) continue;
        for (const std::string& index : view.List(port.path + "/pkeys")) {
            const std::string pkey = view.Text(port.path + "/pkeys/" + index);
            const auto value = Integer(pkey.starts_with("0x") ? pkey.substr(2) : pkey, 16);
            if (!value || *value == 0) continue;
            if ((*value & kNumber) == (*wanted & kNumber)) return;
            table.push_back(pkey);
        }
    }
    if (table.empty()) return;
    out.Warn(fmt::format("{}: partition {}; the port has {}", device.name, text, Joined(table)),
             "the partition in the port's table",
             "the subnet manager has not given this port the partition: the interface carries "
             "nothing",
             fmt::format("a line for it in /etc/opensm/partitions.conf (ranks={0},ipoib : "
                         "ALL=full;), then sudo systemctl restart opensm; or an interface of the "
                         "default partition, ib0",
                         text));
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

bool HasOtherNetwork(const std::vector<NetDevice>& all, const std::vector<NetDevice>& ipoib) {
    return std::ranges::any_of(all, [&](const NetDevice& device) {
        const bool other = FindNetDevice(ipoib, device.name) == nullptr;
        return other && device.up && !device.addresses.empty() && !IsOfContainers(device.name);
    });
}

}  // namespace

void RunIbIpoib(HostView& view, Findings& out) {
    size_t active = 0;
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (port.link_layer == "InfiniBand" && port.active()) ++active;
    }
    if (active == 0) return;
    const std::vector<NetDevice> all = NetDevices(view);
    const std::vector<NetDevice> devices = IpoibDevices(view, all);
    const bool rails = active > 1 && HasOtherNetwork(all, devices);
    const auto used = static_cast<size_t>(std::ranges::count_if(devices, IsInUse));
    for (const NetDevice& device : devices) {
        // An interface without a cable is down; that is fine.
        if (IsInUse(device) || used < active) LookIbIpoib(view, device, rails, out);
        LookAtPartition(view, device, out);
    }
    if (!devices.empty() || all.empty()) return;
    if (view.List("sys/class/net").empty() && !view.Complete()) return;
    out.Add(rails ? Severity::kNote : Severity::kWarn,
            "an active InfiniBand port, but no IPoIB interface", "ib0 with an IPv4 address",
            "hosts find each other by IP: without it they use another network",
            "sudo modprobe ib_ipoib; 'ip link' then lists its interface, which wants an address");
}

}  // namespace weft::doctor::checks
