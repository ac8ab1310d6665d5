// Which RDMA device, port and GID a link uses, found from sysfs alone: no libibverbs in here.
//
// RoCE: a port's GID table holds an entry for each address of its network interface; the one of
// type "RoCE v2" with the address under which the peer reaches this host is the one to use.
// InfiniBand: addressed by LID; the port is found by the IPoIB interface that has that address, or
// is the only active one. Layout of the files: Documentation/ABI/stable/sysfs-class-infiniband of
// the Linux sources. A GID is 16 bytes in network order; an IPv4 address is ::ffff:a.b.c.d.
// Errors: kNotFound, kDenied, kUsage, each with the next step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/addresses.h"

namespace weft::net {

using Gid = std::array<uint8_t, 16>;
// "10.0.0.1" where it is an IPv4 address, else as IPv6.
std::string GidText(const Gid& gid);
bool IsIpv4(const Gid& gid);
// Of a numeric address; all zero for anything else.
Gid GidOfAddress(const std::string& address);
bool IsLoopbackAddress(const std::string& address);

struct GidEntry {
    int index = 0;
    Gid gid{};
    bool roce_v2 = false;
};

struct RdmaPort {
    std::string device;
    int port = 1;
    bool infiniband = false;  // else Ethernet
    bool active = false;
    std::string state;                 // as the kernel words it: "4: ACTIVE"
    std::vector<std::string> netdevs;  // of the port, as far as its device names them
    std::vector<GidEntry> gids;        // those that are not zero
    std::string Name() const;          // "mlx5_0:1"
};

// Where to look; others than the defaults for tests.
struct HostRoots {
    std::string sys = "/sys";
    std::string dev = "/dev";
};

// All ports of all RDMA devices, by name. Empty where the kernel has none.
std::vector<RdmaPort> ListRdmaPorts(const HostRoots& roots = {});

// What a link wants.
struct RdmaWish {
    std::string device;   // "": chosen by address; else "mlx5_0" or "mlx5_0:1"
    int gid_index = -1;   // -1: chosen
    std::string address;  // of this host, as the peer reaches it; "" or loopback: from within it
};

struct RdmaPath {
    std::string device;
    int port = 1;
    bool infiniband = false;
    int gid_index = 0;
    Gid gid{};
};

Result<RdmaPath> ChooseRdmaPath(const std::vector<RdmaPort>& ports,
                                const std::vector<LocalAddress>& addresses, const RdmaWish& wish);

// Whether this process may use RDMA at all: a device, its node under /dev/infiniband, permission.
Status CheckRdmaHost(const std::vector<RdmaPort>& ports, const HostRoots& roots = {});
// The same of one device.
Status CheckRdmaDevice(const std::string& device, const HostRoots& roots = {});

// Why memory could not be registered: `limit_bytes` is what the process may lock, ~0: no limit.
Error RegistrationError(size_t bytes, uint64_t limit_bytes, int error);

// How a peer's queue pair and memory are reached: what an offer says of verbs.
struct VerbsAddress {
    bool infiniband = false;
    uint8_t mtu = 1;   // as in ibv_mtu: 1 is 256 bytes, 5 is 4096
    uint16_t lid = 0;  // of InfiniBand
    uint32_t qpn = 0;  // 24 bits
    uint32_t psn = 0;  // 24 bits
    uint32_t rkey = 0;
    uint64_t region = 0;  // address of the flags; the window follows at kVerbsWindowAt
    Gid gid{};
    bool operator==(const VerbsAddress&) const = default;
};
// The bytes before the window: flags and what the link itself raises.
inline constexpr size_t kVerbsWindowAt = 4096;

// Whether what a peer says can be true for windows of `window_bytes`.
bool Plausible(const VerbsAddress& address, uint64_t window_bytes);
// "": two such ends can be joined; else why not.
std::string WhyNotJoined(const VerbsAddress& a, const VerbsAddress& b);

}  // namespace weft::net
