// Packet size of RoCE, which follows from the interface's MTU.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/network.h"
#include "doctor/rdma.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr int kMostMtu = 4096;
constexpr int kBetween = 20;  // preamble and gap between Ethernet packets
constexpr int kHeaders = 70;  // of RoCE v2 in an Ethernet packet: IP, UDP, BTH, RETH, checksums

int RdmaMtu(int mtu) {
    for (int size : {kMostMtu, 2048, 1024, 512}) {
        if (mtu >= size + kHeaders) return size;
    }
    return 256;
}

// Of the wire, what is data in packets of that size.
double DataShare(int size) {
    return static_cast<double>(size) / (size + kHeaders + kBetween);
}

void AskSmallPackets(HostView& view, const RdmaPort& port, int size, Findings& out) {
    const std::optional<HostLink> otherwise = PortLink(port);
    if (!otherwise) return;
    HostLink so = *otherwise;
    so.share = DataShare(size) / DataShare(kMostMtu);
    out.AskCost(LinkQuestion(view, so, *otherwise));
}

void RunRdmaMtu(HostView& view, Findings& out) {
    const std::vector<NetDevice> devices = NetDevices(view);
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!port.ethernet() || !port.active()) continue;
        for (const std::string& name : RdmaInterfaces(view, port)) {
            const NetDevice* device = FindNetDevice(devices, name);
            if (device == nullptr || device->mtu == 0) continue;
            const int size = RdmaMtu(device->mtu);
            const std::string read = fmt::format("{}: {} has MTU {}, so RDMA packets of {} bytes",
                                                 port.Text(), name, device->mtu, size);
            if (size == 4096) {
                out.Ok(read, "MTU 4200 or more");
                continue;
            }
            out.Note(read, "MTU 4200 or more (9000 on both ends and the switch)",
                     fmt::format("8 KB are {} packets instead of 2; large transfers reach {:.0f} % "
                                 "of the wire instead of {:.0f} %",
                                 8192 / size, 100 * DataShare(size), 100 * DataShare(kMostMtu)),
                     SetMtu(view, name, 9000) + ", on both ends");
            AskSmallPackets(view, port, size, out);
        }
    }
}

}  // namespace

const Check kRdmaMtu = {
    .name = "rdma-mtu",
    .what = "MTU of the interfaces under RoCE ports.",
    .reads = "/sys/class/net/*/mtu, /sys/class/infiniband/*/ports/*/gid_attrs/ndevs",
    .why = "An MTU of 1500 cuts RDMA into packets of 1 KB where 4 KB would go.",
    .run = RunRdmaMtu,
};

}  // namespace weft::doctor::checks
