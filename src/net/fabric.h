// Makes a Fabric: ranks exchange offers over an authenticated control plane, then connect the
// links.
//
//     FabricBuilder::Make(options)         opens listeners, draws a random token for each peer
//     OfferTo(p) for every peer p          -> opaque bytes; the caller carries them to rank p
//     Connect(offers_from_peers, deadline) joins every pair; needs all ranks to call it
//
// The higher rank of each pair dials, the lower accepts. A connection must present the token that
// its acceptor offered, and the answer must present the token that its dialer offered; other
// connections (a port scan, a rank of an older epoch) are closed. The data plane is thus as
// trustworthy as the network and as the channel of the offers. Neither tokens nor data are
// encrypted or signed: an attacker who can read or change packets between the hosts can read or
// change all data over tcp, verbs and mpi.
//
// shm: a sealed memfd, passed over an abstract unix socket, so no name in /dev/shm exists and
// nothing remains after a crash. The socket stays open, so that its end reveals a dead peer.
// If only one of a pair can be dialed (Offer::hidden), the other dials.
// tcp: one connection per pair, TCP_NODELAY, non-blocking, no receiver thread. The dialer tries the
// ways of the offer in order, each for a part of the deadline, until that rank answers.
// verbs: a queue pair for each peer, set up by the offers, and a TCP connection, which proves the
// token, says that both ends are ready, and ends when the peer's process does. Device, port and GID
// are those of the address by which the peer reaches this host.
// mpi: messages of an MPI library (mpi/link.h), and a TCP connection as for verbs.
// auto: shm if both offers name the same boot id and network namespace; else verbs if both have a
// device for each other; else mpi if one MPI launcher started both; else tcp.
//
// Offers are hostile input: Connect checks every field. Thread: one (Connect dials on other
// threads). The links live as long as the Fabric; the listeners live as long as the builder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "net/addresses.h"
#include "net/link.h"
#include "net/wire_end.h"

namespace weft::net {

class MpiLibrary;

enum class Transport { kAuto, kShm, kTcp, kVerbs, kMpi };
const char* TransportName(Transport transport);
std::vector<std::string> TransportNames();
// One of TransportNames(). Errors: kUsage.
Result<Transport> ParseTransport(std::string_view name);

// Ports for listeners, both bounds included; 0 and 0: any.
struct PortRange {
    uint16_t first = 0;
    uint16_t last = 0;
};
// "7001-7010" or "7001"; "": any. Errors: kUsage.
Result<PortRange> ParsePorts(std::string_view text);

struct FabricOptions {
    int rank = 0;
    int size = 1;
    std::vector<std::string> hosts;  // one name per rank, for messages; empty: "localhost"
    Transport transport = Transport::kAuto;
    size_t window_bytes = size_t{4} << 20;  // per link and direction, the same on all ranks
    uint64_t epoch = 0;
    std::string listen_host;     // listening address for tcp; "": every address
    std::string advertise_host;  // how peers reach this rank; "": listen_host, else 127.0.0.1
    // Replaces listen_host and advertise_host: ways by which each peer may reach this rank, by
    // rank, best first (addresses.h). The rank listens only on the addresses of these ways.
    std::vector<std::vector<Way>> ways;
    PortRange ports;           // of all listeners for tcp
    std::vector<bool> hidden;  // by peer: it can't dial this rank (NAT); empty: all can
    // Address by which the control plane reached rank 0. Data links try it last, with rank 0's
    // offered port (behind a forwarder, rank 0 doesn't know this address). "": none.
    std::string root_host;
    std::string rdma_device;         // verbs: "mlx5_0" or "mlx5_0:1"; "": by the peer's address
    int gid_index = -1;              // verbs: index in the port's table; -1: chosen
    bool checksum = false;           // collectives verify every message; the same on all ranks
    MpiLibrary* mpi = nullptr;       // if an MPI launcher started this process; outlives the Fabric
    PeerMonitor* monitor = nullptr;  // outlives the Fabric; may also be set later
};

class FabricBuilder {
  public:
    // Errors: kUsage (options), kIo (no listener), kNotFound and kDenied (RDMA devices unusable).
    static Result<std::unique_ptr<FabricBuilder>> Make(FabricOptions options);
    virtual ~FabricBuilder() = default;

    // This rank's offer to rank `peer`, for a channel that outsiders can neither read nor change.
    // The first call for a peer makes the offer (for verbs, its queue pair), later calls return it
    // again.
    virtual std::string OfferTo(int peer) = 0;
    // offers[p] is the result of rank p's OfferTo(this rank); offers[rank] is ignored. Call it
    // once. Errors: kCorrupt (an offer), kUsage (ranks disagree on options), kTimeout (names the
    // missing ranks), kPeerLost, kIo.
    virtual Result<Fabric> Connect(const std::vector<std::string>& offers,
                                   const Deadline& deadline) = 0;
    // After Connect: this rank's end of each link, by peer; its own entry is empty.
    virtual const std::vector<WireEnd>& ends() const = 0;
    // After a failed Connect: peers that this rank could not dial.
    virtual const std::vector<int>& unreached() const = 0;
};

}  // namespace weft::net
