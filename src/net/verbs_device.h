// Chooses the RDMA device, port and GID of a link. Reads only sysfs, without libibverbs.
//
// RoCE: a port's GID table has an entry for each address of its network interface; the link uses
// the "RoCE v2" entry with the address by which the peer reaches this host.
// InfiniBand: the peer is addressed by LID. The link uses the port of the IPoIB interface with that
// address, or the only active port.
// Another link layer (modules for RDMA over USB4 and the like): the peer is addressed by GID, of
// any type if none is "RoCE v2", or by LID if the port has no GID. File layout:
// Documentation/ABI/stable/sysfs-class-infiniband of the Linux sources. A GID is 16 bytes in
// network order; an IPv4 address is ::ffff:a.b.c.d. Errors: kNotFound, kDenied, kUsage; each
// message states what to do.
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
// "10.0.0.1" for an IPv4 address, else IPv6 notation.
std::string GidText(const Gid& gid);
bool IsIpv4(const Gid& gid);
// GID of a numeric address; all zero if `address` is not one.
Gid GidOfAddress(const std::string& address);
bool IsLoopbackAddress(const std::string& address);

struct GidEntry {
    int index = 0;
    Gid gid{};
    bool roce_v2 = false;  // of this type, or of any on a port of another link layer without it
};

struct RdmaPort {
    std::string device;
    int port = 1;
    bool infiniband = false;   // peers are addressed by LID; false: by GID
    bool other_layer = false;  // neither InfiniBand nor Ethernet
    bool active = false;
    std::string state;                 // as the kernel writes it: "4: ACTIVE"
    std::vector<std::string> netdevs;  // the port's network interfaces, if the device names them
    std::vector<GidEntry> gids;        // non-zero entries
    std::string Name() const;          // "mlx5_0:1"
};

// Folders that these functions search; tests use other folders.
struct HostRoots {
    std::string sys = "/sys";
    std::string dev = "/dev";
};

// All ports of all RDMA devices, sorted by name. Empty if there is no RDMA device.
std::vector<RdmaPort> ListRdmaPorts(const HostRoots& roots = {});

// The RDMA port and GID that a link requests.
struct RdmaSetting {
    std::string device;   // "mlx5_0" or "mlx5_0:1"; "": chosen by `address`
    int gid_index = -1;   // -1: chosen
    std::string address;  // address by which the peer reaches this host; "" or loopback: the peer
                          // is on this host
};

struct RdmaPath {
    std::string device;
    int port = 1;
    bool infiniband = false;
    int gid_index = 0;
    Gid gid{};
};

Result<RdmaPath> ChooseRdmaPath(const std::vector<RdmaPort>& ports,
                                const std::vector<LocalAddress>& addresses,
                                const RdmaSetting& wish);

// Checks that this process can use RDMA: there is a device, its node exists under /dev/infiniband,
// and the process has permission to open the node.
Status CheckRdmaHost(const std::vector<RdmaPort>& ports, const HostRoots& roots = {});
// As CheckRdmaHost, for one device.
Status CheckRdmaDevice(const std::string& device, const HostRoots& roots = {});

// The error for a failed registration of `bytes` bytes. limit_bytes: memory that the process may
// lock; ~0: no limit. error: errno.
Error RegistrationError(size_t bytes, uint64_t limit_bytes, int error);

// Address of a peer's queue pair and memory; the verbs part of an offer.
struct VerbsAddress {
    bool infiniband = false;
    uint8_t mtu = 1;   // code of enum ibv_mtu: 1 is 256 bytes, 5 is 4096
    uint16_t lid = 0;  // for InfiniBand
    uint32_t qpn = 0;  // 24 bits
    uint32_t psn = 0;  // 24 bits
    uint32_t rkey = 0;
    uint64_t region = 0;  // address of the flags; the window begins kVerbsWindowAt bytes later
    Gid gid{};
    bool operator==(const VerbsAddress&) const = default;
};
// Bytes before the window: the flags, and values that the link uses itself.
inline constexpr size_t kVerbsWindowAt = 4096;

// Whether the fields of a peer's address have valid values for a window of `window_bytes` bytes.
bool Plausible(const VerbsAddress& address, uint64_t window_bytes);
// Why queue pairs with these addresses cannot be connected; "": they can.
std::string WhyNotJoined(const VerbsAddress& a, const VerbsAddress& b);

}  // namespace weft::net
