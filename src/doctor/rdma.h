// The RDMA devices and ports of a host, out of sysfs; in a snapshot made by hand also out of what
// ibstat, ibstatus, ibv_devinfo or `rdma link` print.
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
    std::string path;       // in sysfs; "" where a program told of it
    std::string kind;       // "MT4099", a maker's model; "" where not known
    std::string pci;        // "0000:01:00.0"; "" where not known
    std::string interface;  // where a program named it
    std::string image;      // the card's own GUID, which all of its devices have; "" not known
    bool iwarp = false;     // of the two protocols over Ethernet
    bool no_guid = false;   // its node has none: a virtual function that was not set up
    bool ethernet() const { return link_layer == "Ethernet"; }
    bool infiniband() const { return link_layer == "InfiniBand"; }
    bool active() const { return state == "ACTIVE"; }
    // rxe and siw: RDMA in software over any interface.
    bool software() const { return device.starts_with("rxe") || device.starts_with("siw"); }
    // By the model, else by the device's name: NVIDIA's, whose ports can speak either protocol.
    bool mellanox() const { return kind.starts_with("MT") || device.starts_with("mlx"); }
    // By the model, else by the device's name: a ConnectX-3 or older.
    bool mlx4() const;
    std::string Text() const;  // "mlx5_0 port 1"
};

std::vector<RdmaPort> RdmaPorts(HostView& view);
// Which port of its card it is, from 1 on: since ConnectX-4 each port is a device of its own,
// function 0 and 1 of the card.
int64_t PortOfCard(const RdmaPort& port, const std::vector<RdmaPort>& all);
// What one of the programs printed; none where the text is something else.
std::vector<RdmaPort> ParseRdmaPorts(std::string_view text);
// The InfiniBand rate that all cards of the model reach, in Gb/s with four lanes; 0: not known.
double LeastRateOf(const RdmaPort& port);
// The entries that are not empty; none where the port is of ibstat.
std::vector<RdmaGid> RdmaGids(HostView& view, const RdmaPort& port);
// The interfaces of the host that belong to the port, by its GIDs and by the device's folder.
std::vector<std::string> RdmaInterfaces(HostView& view, const RdmaPort& port);

}  // namespace weft::doctor
