// IP over InfiniBand, by which hosts find each other before RDMA begins.
#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks/checks.h"
#include "doctor/network.h"
#include "doctor/rdma.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

void LookIbIpoib(HostView& view, const NetDevice& device, Findings& out) {
    const std::string mode = view.Text("sys/class/net/" + device.name + "/mode");
    const std::string read =
        fmt::format("{}: {}, mode {}, MTU {}, {}", device.name, device.up ? "up" : "down",
                    mode.empty() ? "not known" : mode, device.mtu,
                    !device.addresses.empty() ? device.addresses.front().Text()
                    : device.addressed        ? "no IPv4 address"
                                              : "addresses not read");
    if (!device.up || (device.addressed && device.addresses.empty())) {
        return out.Warn(read, "up, with an IPv4 address",
                        "hosts find each other, and choose the RDMA port, by its address: without "
                        "one the peer is reached by another network",
                        fmt::format("sudo ip link set dev {0} up && sudo ip addr add 10.0.0.1/24 "
                                    "dev {0}",
                                    Quoted(device.name)));
    }
    if (mode == "connected" && device.mtu > 0 && device.mtu <= 4096) {
        return out.Note(read, "MTU 65520 in connected mode",
                        "TCP in packets of 2 KB: half of the speed or less",
                        fmt::format("sudo ip link set dev {} mtu 65520", Quoted(device.name)));
    }
    if (mode == "datagram" && device.mtu > 0 && device.mtu < 2044) {
        return out.Note(read, "MTU 2044 (4092 where the fabric allows)", "TCP in small packets",
                        fmt::format("sudo ip link set dev {} mtu 2044", Quoted(device.name)));
    }
    out.Ok(read);
}

bool IsInUse(const NetDevice& device) {
    return device.up && (!device.addressed || !device.addresses.empty());
}

// ARPHRD_INFINIBAND
std::vector<NetDevice> IpoibDevices(HostView& view, const std::vector<NetDevice>& all) {
    std::vector<NetDevice> found;
    for (const NetDevice& device : all) {
        const std::string type = view.Text("sys/class/net/" + device.name + "/type");
        if (type.empty() ? device.name.starts_with("ib") : type == "32") found.push_back(device);
    }
    return found;
}

void RunIbIpoib(HostView& view, Findings& out) {
    size_t active = 0;
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (port.link_layer == "InfiniBand" && port.active()) ++active;
    }
    if (active == 0) return;
    const std::vector<NetDevice> all = NetDevices(view);
    const std::vector<NetDevice> devices = IpoibDevices(view, all);
    const auto used = static_cast<size_t>(std::ranges::count_if(devices, IsInUse));
    for (const NetDevice& device : devices) {
        // The interface of a port without a cable is down, and that is well.
        if (IsInUse(device) || used < active) LookIbIpoib(view, device, out);
    }
    if (!devices.empty() || all.empty()) return;
    if (view.List("sys/class/net").empty() && !view.Complete()) return;
    out.Warn("an active InfiniBand port, but no IPoIB interface", "ib0 with an IPv4 address",
             "hosts find each other by IP: without it they use another network",
             "sudo modprobe ib_ipoib && sudo ip link set dev ib0 up");
}

}  // namespace

const Check kIbIpoib = {
    .name = "ib-ipoib",
    .what = "IPoIB interfaces: up, addressed, mode and MTU.",
    .reads = "/sys/class/net/*/{type,mode,mtu,operstate}, ip -j addr",
    .why = "Hosts find each other by IP before RDMA begins.",
    .run = RunIbIpoib,
};

}  // namespace weft::doctor::checks
