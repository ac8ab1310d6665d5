// The RDMA devices and ports of a host, out of sysfs or of `ibstat`, whichever was read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

struct RdmaGid {
    int64_t index = 0;
    std::string type;       // "RoCE v2", "IB/RoCE v1"
    std::string interface;  // "ens1"
    std::string ipv4;       // "10.0.0.1" where it is one, else ""
};

struct RdmaPort {
    std::string device;
    int64_t port = 1;
    std::string state;       // "ACTIVE", "DOWN", "INIT", "ARMED"
    std::string physical;    // "LinkUp", "Polling", "Disabled"
    std::string link_layer;  // "Ethernet", "InfiniBand"
    std::string rate;        // "100 Gb/sec (4X EDR)"
    double gigabits = 0;
    std::optional<int64_t> lid, sm_lid;
    std::string firmware;
    std::string path;  // in sysfs; "" where it is of ibstat
    bool ethernet() const { return link_layer == "Ethernet"; }
    bool active() const { return state == "ACTIVE"; }
    std::string Text() const;  // "mlx5_0 port 1"
};

std::vector<RdmaPort> RdmaPorts(HostView& view);
// The entries that are not empty; none where the port is of ibstat.
std::vector<RdmaGid> RdmaGids(HostView& view, const RdmaPort& port);
// The interfaces of the host that belong to the port, by its GIDs and by the device's folder.
std::vector<std::string> RdmaInterfaces(HostView& view, const RdmaPort& port);

}  // namespace weft::doctor
