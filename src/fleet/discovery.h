// Discovery: a thread that says on every cable that this host is there (or asks who is), and hears
// who else is.
//
// Interfaces that come are joined within a second, those that go are left. What comes in is bounded
// a second and interface before its MAC is computed, and so are answers. A host that stops says so;
// one that dies is gone after kLostMs.
#pragma once

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

// What this host says of itself.
struct SelfFacts {
    std::string name, device;
    uint64_t memory_bytes = 0;
    uint16_t port = 0;  // of its worker; 0: it serves nobody, and asks
};
// Its name as beacons have it, from the system's.
std::string OwnName();

// What was heard so far.
struct Hearing {
    std::vector<Wire> wires;
    std::vector<Peer> peers;  // that serve, by name
    std::vector<Stranger> strangers;
};

class Discovery {
  public:
    // key: of the cluster. log: say on the log who comes and goes.
    // Errors: kUnsupported, kIo (BeaconSocket).
    static Result<std::unique_ptr<Discovery>> Start(const Bytes& key, const SelfFacts& self,
                                                    bool log);
    // Says that this host leaves, and ends the thread.
    virtual ~Discovery() = default;

    // Thread: any.
    virtual Hearing Now() const = 0;
    // Until `enough`, or the deadline; then what was heard.
    virtual Hearing Await(const std::function<bool(const Hearing&)>& enough,
                          const Deadline& deadline) const = 0;
};

// Of several cables to a host, the one to take: the fastest, then one with RDMA at both ends.
// Null where nothing was heard.
const HeardCable* BestCable(const Peer& peer, const std::vector<Wire>& wires);
// Of the slower end; 0: not known.
uint32_t CableMbps(const HeardCable& cable, const std::vector<Wire>& wires);
// Where its worker is called over that cable: "[fe80::1%eth1]:7000".
std::string WorkerAddress(const Peer& peer, const HeardCable& cable);
// Of all cables, for links of data between ranks.
std::vector<net::Neighbour> NeighboursOf(const Hearing& hearing);
// "10 Gbit/s", "100 Mbit/s", "" where it is not known.
std::string SpeedText(uint32_t mbps);

}  // namespace weft::fleet
