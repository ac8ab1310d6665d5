// IP over InfiniBand, by which hosts find each other before RDMA begins.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/network.h"
#include "doctor/rdma.h"

namespace weft::doctor::checks {
namespace {

void Look(HostView& view, const NetDevice& device, Findings& out) {
    const std::string mode = view.Text("sys/class/net/" + device.name + "/mode");
    const std::string read =
        fmt::format("{}: {}, mode {}, MTU {}, {}", device.name, device.up ? "up" : "down",
                    mode.empty() ? "not known" : mode, device.mtu,
                    device.addresses.empty() ? "no IPv4 address" : device.addresses.front().Text());
    if (!device.up || device.addresses.empty()) {
        return out.Warn(read, "up, with an IPv4 address",
                        "hosts find each other, and choose the RDMA port, by its address: without "
                        "one the peer is reached by another network",
                        fmt::format("sudo ip link set dev {0} up && sudo ip addr add 10.0.0.1/24 "
                                    "dev {0}",
                                    device.name));
    }
    if (mode == "connected" && device.mtu <= 4096) {
        return out.Note(read, "MTU 65520 in connected mode",
                        "TCP in packets of 2 KB: half of the speed or less",
                        fmt::format("sudo ip link set dev {} mtu 65520", device.name));
    }
    if (mode == "datagram" && device.mtu < 2044) {
        return out.Note(read, "MTU 2044 (4092 where the fabric allows)", "TCP in small packets",
                        fmt::format("sudo ip link set dev {} mtu 2044", device.name));
    }
    out.Ok(read);
}

void Run(HostView& view, Findings& out) {
    bool infiniband = false;
    for (const RdmaPort& port : RdmaPorts(view)) {
        infiniband = infiniband || (port.link_layer == "InfiniBand" && port.active());
    }
    bool any = false;
    const std::vector<NetDevice> devices = NetDevices(view);
    for (const NetDevice& device : devices) {
        // ARPHRD_INFINIBAND
        const std::string type = view.Text("sys/class/net/" + device.name + "/type");
        if (type.empty() ? !device.name.starts_with("ib") : type != "32") continue;
        any = true;
        if (infiniband) Look(view, device, out);
    }
    if (infiniband && !any && !devices.empty()) {
        out.Warn("an active InfiniBand port, but no IPoIB interface", "ib0 with an IPv4 address",
                 "hosts find each other by IP: without it they use another network",
                 "sudo modprobe ib_ipoib && sudo ip link set dev ib0 up");
    }
}

}  // namespace

const Check kIbIpoib = {
    .name = "ib-ipoib",
    .what = "IPoIB interfaces: up, addressed, mode and MTU.",
    .reads = "/sys/class/net/*/{type,mode,mtu,operstate}, ip -j addr",
    .why = "Hosts find each other by IP before RDMA begins.",
    .run = Run,
};

}  // namespace weft::doctor::checks
