// Checks that RoCE has its own address in the port's GID table.
#include <fmt/format.h>

#include <algorithm>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/rdma.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// An entry has a type or an interface but no GID, or a GID but no type.
bool Incomplete(HostView& view, const RdmaPort& port, const std::vector<RdmaGid>& gids) {
    const std::vector<std::string> listed = view.List(port.path + "/gids");
    for (const char* attribute : {"/gid_attrs/types", "/gid_attrs/ndevs"}) {
        for (const std::string& index : view.List(port.path + attribute)) {
            if (!std::ranges::binary_search(listed, index)) return true;
        }
    }
    return std::ranges::any_of(
        gids, [](const RdmaGid& gid) { return gid.type.empty() && !gid.ipv4.empty(); });
}

// The port has the GID that RoCE needs, so another port may lack it.
bool HasGoodGid(HostView& view, const RdmaPort& port) {
    return port.active() && std::ranges::any_of(RdmaGids(view, port), [](const RdmaGid& gid) {
               return Contains(gid.type, "RoCE v2") && !gid.ipv4.empty();
           });
}

// other: another port of the host has such a GID.
void LookRdmaGid(HostView& view, const RdmaPort& port, bool other, Findings& out) {
    const std::vector<RdmaGid> gids = RdmaGids(view, port);
    std::vector<std::string> seen;
    bool ipv4 = false;
    for (const RdmaGid& gid : gids) {
        const bool v2 = Contains(gid.type, "RoCE v2");
        if (v2 && !gid.ipv4.empty()) {
            return out.Ok(fmt::format("{}: GID {} is {}, RoCE v2, of {}", port.Text(), gid.index,
                                      gid.ipv4, gid.interface));
        }
        ipv4 = ipv4 || !gid.ipv4.empty();
        seen.push_back(fmt::format("{} {} {}", gid.index,
                                   gid.ipv4.empty() ? "IPv6" : gid.ipv4.c_str(), gid.type));
    }
    if (Incomplete(view, port, gids)) {
        return out.Note(
            fmt::format("{}: some of its GIDs and their types could not be read", port.Text()),
            "a GID of type RoCE v2 with an IPv4 address", "RoCE needs one");
    }
    const std::string read =
        fmt::format("{}: GIDs {}", port.Text(), seen.empty() ? "none" : Joined(seen));
    const char* why =
        "queue pairs over a link-local or RoCE v1 address time out (completion error "
        "12) or don't pass the switch: no RDMA, but TCP";
    if (ipv4) {
        out.Fail(read, "a GID of type RoCE v2 with an IPv4 address", why,
                 fmt::format("echo 'RoCE v2' | sudo tee /sys/kernel/config/rdma_cm/{}/ports/"
                             "{}/default_roce_mode, and a card and firmware with RoCE v2 "
                             "(ConnectX-3 Pro and newer)",
                             ShellWord(port.device), port.port));
        return out.AskCost(TcpQuestion(view, PortLink(port)));
    }
    const std::vector<std::string> interfaces = RdmaInterfaces(view, port);
    out.Add(other ? Severity::kNote : Severity::kFail, read,
            "a GID of type RoCE v2 with an IPv4 address", why,
            interfaces.empty()
                ? "give the port's interface an IPv4 address, on the peer another one "
                  "of the same subnet"
                : AddAddress(view, interfaces.front()));
    if (other) return;
    out.AskCost(TcpQuestion(view, PortLink(port)));
}

}  // namespace

void RunRdmaGid(HostView& view, Findings& out) {
    const std::vector<RdmaPort> ports = RdmaPorts(view);
    const bool told = std::ranges::any_of(ports, &RdmaPort::active);
    if (!HasRdma(view)) return;
    for (const RdmaPort& port : ports) {
        const bool other = std::ranges::any_of(ports, [&](const RdmaPort& one) {
            return (one.device != port.device || one.port != port.port) && HasGoodGid(view, one);
        });
        // A port with few facts may be an unused one.
        const bool up = port.active() || (port.state.empty() && !told);
        const bool listed = !port.path.empty() && !view.List(port.path + "/gids").empty();
        if (port.ethernet() && !port.iwarp && up && listed) LookRdmaGid(view, port, other, out);
    }
}

}  // namespace weft::doctor::checks
