// RDMA devices and ports of a host, from sysfs; in a handmade snapshot also from the output of
// ibstat, ibstatus, ibv_devinfo or `rdma link`.
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
    std::string ipv4;       // "10.0.0.1" if the GID holds an IPv4 address, else ""
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
    std::string path;       // in sysfs; "": the port is known from a program's output
    std::string kind;       // the vendor's name of the model, "MT4099"; "": unknown
    std::string pci;        // "0000:01:00.0"; "": unknown
    std::string interface;  // "": no program named it
    std::string image;      // the card's GUID, common to its devices; "": unknown
    bool iwarp = false;     // iWARP, not RoCE
    bool no_guid = false;   // the node has no GUID: a virtual function without setup
    bool ethernet() const { return link_layer == "Ethernet"; }
    bool infiniband() const { return link_layer == "InfiniBand"; }
    bool active() const { return state == "ACTIVE"; }
    // Whether this is RDMA in software (rxe, siw), which works over any interface.
    bool software() const { return device.starts_with("rxe") || device.starts_with("siw"); }
    // Whether the card is from NVIDIA (Mellanox), so its ports support InfiniBand and Ethernet.
    // Judged by the model, else by the device's name.
    bool mellanox() const { return kind.starts_with("MT") || device.starts_with("mlx"); }
    // Whether the card is a ConnectX-3 or older. Judged by the model, else by the device's name.
    bool mlx4() const;
    std::string Text() const;  // "mlx5_0 port 1"
};

const std::vector<RdmaPort>& RdmaPorts(HostView& view);
// Number of the port on its card, from 1. Since ConnectX-4, each port is a device of its own:
// function 0 or 1 of the card.
int64_t PortOfCard(HostView& view, const RdmaPort& port);
// Whether the port's card is a ConnectX-3, but not a Pro: as Ethernet it has RoCE v1 only.
bool LacksRoceV2(HostView& view, const RdmaPort& port);
// Whether the port has this protocol or can be set to it. Ethernet means RoCE v2.
bool CanSpeak(HostView& view, const RdmaPort& port, bool infiniband);
// Parses the output of ibstat, ibstatus, ibv_devinfo or `rdma link`; empty: another format.
std::vector<RdmaPort> ParseRdmaPorts(std::string_view text);
// The InfiniBand rate that every card of this model reaches with four lanes, in Gb/s; 0: unknown.
double LeastRateOf(const RdmaPort& port);
// The port's GIDs, without empty entries. None if the port is known only from a program's output.
std::vector<RdmaGid> RdmaGids(HostView& view, const RdmaPort& port);
// Network interfaces of this port, from its GIDs and the device's folder in sysfs.
std::vector<std::string> RdmaInterfaces(HostView& view, const RdmaPort& port);

}  // namespace weft::doctor
