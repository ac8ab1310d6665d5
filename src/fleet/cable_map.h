// The network interfaces of this host that lead to other hosts, and the socket for beacons on all
// of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "fleet/discovery_packet.h"
#include "net/socket.h"

namespace weft::fleet {

// A network interface that is up and has a carrier, except the loopback interface.
struct Wire {
    std::string name;
    int index = 0;
    std::string address;  // link-local IPv6, without scope
    uint32_t mbps = 0;    // 0: unknown
    std::string rdma;     // an RDMA device on it: "mlx5_0:1"; "": none
    std::string trouble;  // why it cannot carry beacons; "": it can
    bool operator==(const Wire&) const = default;
};
// Sorted by name.
std::vector<Wire> ListWires();

struct Datagram {
    Bytes bytes;
    std::string interface, address;  // receiving interface, and the sender's link-local address
};

// Thread: one.
class DiscoverySocket {
  public:
    // Errors: kUnsupported (no IPv6), kIo.
    static Result<DiscoverySocket> Open();
    int fd() const { return fd_.get(); }
    // Joins the beacons' multicast group on interfaces that have not joined yet. If that fails, the
    // interface's `trouble` holds the reason.
    void Join(std::vector<Wire>& wires);
    Status Send(const Wire& wire, View bytes) const;
    // The next datagram from a link-local address, if any.
    std::optional<Datagram> Receive() const;

  private:
    explicit DiscoverySocket(Fd fd) : fd_(std::move(fd)) {}
    Fd fd_;
    std::vector<std::pair<std::string, int>> joined_;  // name, index
};

}  // namespace weft::fleet
