// The network interfaces of this host that lead to others, and the socket by which beacons go out
// and come in on each of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "fleet/discovery_packet.h"
#include "net/socket.h"

namespace weft::fleet {

// An interface that is up and has a carrier, but for the loopback.
struct Wire {
    std::string name;
    int index = 0;
    std::string address;  // link-local IPv6, without scope
    uint32_t mbps = 0;    // 0: not known
    std::string rdma;     // an RDMA device on it: "mlx5_0:1"; "": none
    std::string trouble;  // why no beacon goes by it; "": one does
    bool operator==(const Wire&) const = default;
};
// By name.
std::vector<Wire> ListWires();

struct Datagram {
    Bytes bytes;
    std::string interface, address;  // where it came in, and from whom (link-local)
};

// Thread: one.
class DiscoverySocket {
  public:
    // Errors: kUnsupported (no IPv6), kIo.
    static Result<DiscoverySocket> Open();
    int fd() const { return fd_.get(); }
    // Joins the group on interfaces that are new; what is wrong with one becomes its trouble.
    void Join(std::vector<Wire>& wires);
    Status Send(const Wire& wire, View bytes) const;
    // The next that came from a link-local address, if there is one.
    std::optional<Datagram> Receive() const;

  private:
    explicit DiscoverySocket(net::Fd fd) : fd_(std::move(fd)) {}
    net::Fd fd_;
    std::vector<std::pair<std::string, int>> joined_;  // name, index
};

}  // namespace weft::fleet
