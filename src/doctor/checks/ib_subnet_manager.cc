// Checks that InfiniBand has exactly one active subnet manager on a host or switch.
#include <fmt/format.h>

#include <map>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/rdma.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

bool RunsManager(HostView& view) {
    const Reading state = view.Command("systemctl is-active opensm");
    return state.found() && Trim(state.text) == "active";
}

bool IsInfiniband(const RdmaPort& port) {
    return port.link_layer == "InfiniBand" && port.physical != "Disabled" &&
           port.physical != "Polling" && port.state != "DOWN" && !port.no_guid;
}

}  // namespace

void RunIbSubnetManager(HostView& view, Findings& out) {
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!IsInfiniband(port) || !port.sm_lid) continue;
        const std::string read = fmt::format("{}: lid {}, sm_lid {}, state {}", port.Text(),
                                             port.lid.value_or(0), *port.sm_lid, port.state);
        if (*port.sm_lid != 0 && port.lid.value_or(1) != 0) {
            out.Ok(read);
            continue;
        }
        out.Fail(read, "lid and sm_lid not 0: a subnet manager gave them",
                 "without a subnet manager no port becomes ACTIVE and nothing is carried",
                 StartManager(view, port));
    }
}

namespace {

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

}  // namespace

void AcrossIbSubnetManager(Hosts hosts, Findings& out) {
    std::vector<std::string> managers, lids;
    bool infiniband = false;
    std::optional<int64_t> common;
    bool differ = false;
    for (const auto& host : hosts) {
        bool here = false;
        for (const RdmaPort& port : RdmaPorts(*host)) {
            if (!IsInfiniband(port) || !port.sm_lid || *port.sm_lid == 0) continue;
            here = true;
            lids.push_back(fmt::format("{} sm_lid {}", host->host(), *port.sm_lid));
            differ = differ || (common && *common != *port.sm_lid);
            common = *port.sm_lid;
        }
        infiniband = infiniband || here;
        if (here && RunsManager(*host)) managers.push_back(host->host());
    }
    if (!infiniband) return;
    if (differ && managers.size() > 1 && MayShareSubnet(hosts)) {
        return out.Warn(
            fmt::format("opensm runs on {}, each a master: {}", Joined(managers), Joined(lids)),
            "one master, the others standing by",
            "two masters give addresses in turn: links drop for seconds whenever they "
            "argue, and each drop ends a job",
            "sudo systemctl disable --now opensm, on all hosts but one");
    }
    if (differ) {
        return out.Note(Joined(lids), "the same subnet manager for ports of one fabric",
                        "ports with different subnet managers are on different fabrics, and can't "
                        "reach each other (two cables without a switch are two fabrics)",
                        "connect the ports that belong together");
    }
    // All ports have the same master; the other managers are on standby, as they should be.
    out.Ok(Joined(lids) + (managers.size() > 1 ? "; one master, the others stand by" : ""));
}

}  // namespace weft::doctor::checks
