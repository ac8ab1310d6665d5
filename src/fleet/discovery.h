// Discovery: a thread that finds the cluster's other hosts on every cable. It announces this host,
// or only queries the present hosts if this host does not serve, and listens to the announcements
// of others.
//
// It joins new interfaces within a second, and leaves those that disappear. For each interface and
// second, it accepts a limited number of packets before it checks their authentication code (HMAC),
// and sends a limited number of answers. An answer is a beacon; it first echoes the senders that
// wait for an answer. Each host sends its answer a little later than the others, so that the
// answers of hundreds of hosts fit into the receive buffer. A host that stops announces it; a host
// that dies disappears after kLostMs.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "fleet/cable_map.h"
#include "fleet/discovery_packet.h"
#include "fleet/roster.h"
#include "net/addresses.h"

namespace weft::fleet {

// Times between the first beacons of a process; kBeaconMs from then on.
inline constexpr std::array<int64_t, 4> kFirstTicksMs = {100, 200, 300, 400};
inline constexpr int kMostAnswersASecond = 20;  // per interface
// Delay of the answers of `host` if it receives beacons of so many hosts: one millisecond per host.
inline int64_t AnswerDelayMs(uint64_t host, size_t hosts_heard) {
    return static_cast<int64_t>(host % (hosts_heard + 1));
}

// Properties that this host announces.
struct SelfFacts {
    std::string name, device;
    uint64_t memory_bytes = 0;
    uint16_t port = 0;  // port of its worker; 0: this host does not serve, and only queries
};
// This host's name in beacons, derived from the system's host name.
std::string OwnName();

// The hosts heard so far.
struct Hearing {
    std::vector<Wire> wires;
    std::vector<Peer> peers;  // hosts that serve, by name
    std::vector<Stranger> strangers;
};

class Discovery {
  public:
    // key: the cluster's key. log: whether to log hosts that come and go. Errors: kUnsupported, kIo
    // (DiscoverySocket).
    static Result<std::unique_ptr<Discovery>> Start(const Bytes& key, const SelfFacts& self,
                                                    bool log);
    // Announces that this host leaves, and ends the thread.
    virtual ~Discovery() = default;

    // Thread: any.
    virtual Hearing Now() const = 0;
    // Waits until `enough` returns true or the deadline passes. Returns the hosts heard so far.
    virtual Hearing Await(const std::function<bool(const Hearing&)>& enough,
                          const Deadline& deadline) const = 0;
};

// Returns the best of several cables to a host: the fastest; of equally fast ones, one with RDMA at
// both ends. Returns null if no beacon arrived over a cable to the host.
const ReportedCable* BestCable(const Peer& peer, const std::vector<Wire>& wires);
// Speed of the cable's slower end in Mbit/s; 0: unknown.
uint32_t CableMbps(const ReportedCable& cable, const std::vector<Wire>& wires);
// Address of the peer's worker over this cable: "[fe80::1%eth1]:7000".
std::string WorkerAddress(const Peer& peer, const ReportedCable& cable);
// The neighbors on all cables, for data links between ranks.
std::vector<net::Neighbour> NeighboursOf(const Hearing& hearing);
// "10 Gbit/s", "100 Mbit/s"; "": unknown.
std::string SpeedText(uint32_t mbps);

}  // namespace weft::fleet
