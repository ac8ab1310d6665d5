// MTU on both ends of a subnet.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/network.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

struct End {
    std::string host, device;
    int mtu = 0;
    HostView* view = nullptr;
    std::string mode;  // of IPoIB: "connected", "datagram"; else ""
};

// IPoIB of one end connected, of the other not: its MTU can't be that of the connected one.
bool LookAtModes(const End& least, const End& most, Findings& out) {
    if (least.mode.empty() || most.mode.empty() || least.mode == most.mode) return false;
    const End& connected = least.mode == "connected" ? least : most;
    const End& datagram = least.mode == "connected" ? most : least;
    out.Warn(
        fmt::format("{} {}: IPoIB {}, MTU {}; {} {}: IPoIB {}, MTU {}", least.host, least.device,
                    least.mode, least.mtu, most.host, most.device, most.mode, most.mtu),
        "one mode on all ends of a subnet",
        "what the connected end sends is larger than the other can take: small messages "
        "work, then a transfer hangs",
        fmt::format("on {}: echo datagram | sudo tee /sys/class/net/{}/mode && {}; or "
                    "connected on all, where the cards can (mlx5 can't)",
                    ShellWord(connected.host), ShellWord(connected.device),
                    SetMtu(*connected.view, connected.device, datagram.mtu)));
    return true;
}

void AcrossMtu(Hosts hosts, Findings& out) {
    std::map<std::pair<uint32_t, int>, std::vector<End>> subnets;
    for (const auto& host : hosts) {
        for (const NetDevice& device : NetDevices(*host)) {
            for (const Ipv4& address : device.addresses) {
                if (address.IsLoopback() || address.IsLinkLocal() || address.prefix >= 32 ||
                    device.mtu == 0 || !device.up || IsOfContainers(device.name)) {
                    continue;
                }
                subnets[{address.network(), address.prefix}].push_back(
                    {host->host(), device.name, device.mtu, host.get(),
                     host->Text("sys/class/net/" + device.name + "/mode")});
            }
        }
    }
    for (const auto& [subnet, ends] : subnets) {
        const End* least = &ends.front();
        const End* most = &ends.front();
        for (const End& end : ends) {
            if (end.mtu < least->mtu) least = &end;
            if (end.mtu > most->mtu) most = &end;
        }
        const End& first = ends.front();
        const auto unlike = std::ranges::find_if(
            ends, [&first](const End& end) { return end.mode != first.mode; });
        if (unlike != ends.end() && LookAtModes(ends.front(), *unlike, out)) continue;
        if (ends.size() < 2 || least->host == most->host) {
            if (ends.size() > 1 && least->mtu == most->mtu) {
                out.Ok(fmt::format("{}/{}: MTU {} on {} ends", Ipv4{subnet.first, 0}.Text(),
                                   subnet.second, least->mtu, ends.size()));
            }
            continue;
        }
        out.Fail(fmt::format("{} {}: MTU {}; {} {}: MTU {}", least->host, least->device, least->mtu,
                             most->host, most->device, most->mtu),
                 "the same MTU on all ends of a subnet",
                 fmt::format("RDMA and large TCP packets above {} bytes are dropped on the way: "
                             "small messages work, then a transfer hangs (RDMA with completion "
                             "error 12 after some seconds)",
                             least->mtu),
                 fmt::format("on {} (and on the switch between them): {}", ShellWord(least->host),
                             SetMtu(*least->view, least->device, most->mtu)));
    }
}

}  // namespace

const Check kAcrossMtu = {
    .name = "across-mtu",
    .what = "The same MTU, and mode of IPoIB, on all ends of a subnet.",
    .reads = "ip -j addr, /sys/class/net/*/{mtu,mode}",
    .why = "Where they differ, small messages work and large ones hang.",
    .across = AcrossMtu,
};

}  // namespace weft::doctor::checks
