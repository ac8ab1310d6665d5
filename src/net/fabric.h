// Making a Fabric: from offers that ranks exchange over an authenticated control plane to links.
//
//     FabricBuilder::Make(options)         opens listeners, draws a random token for each peer
//     OfferTo(p) for every peer p          -> opaque bytes; the caller carries them to rank p
//     Connect(offers_from_peers, deadline) joins every pair; needs all ranks to call it
//
// Of each pair the higher rank dials and the lower accepts. A connection must present the token
// that its acceptor offered, and is answered with the token that its dialler offered; one that
// does not (a port scan, a rank of an older epoch) is closed and the rest goes on. So the data
// plane is as trustworthy as the channel that carried the offers, and as the network: neither
// tokens nor data are encrypted or signed, so whoever can read or change packets between the hosts
// can do so with all that goes over tcp, verbs and mpi.
//
// shm: a sealed memfd handed over an abstract unix socket, so no name in /dev/shm ever exists and
// nothing is left behind whoever dies when. The socket stays open: its end tells of a dead peer.
// Where only one of a pair can be dialled (Offer::hidden), the other dials.
// tcp: one connection a pair, TCP_NODELAY, non-blocking, no receiver thread. The dialler tries the
// ways of the offer in their order, each for a part of the deadline, until that rank answers.
// verbs: a queue pair for each peer, set up by the offers, and beside it a connection as of tcp,
// which proves the token, says that both ends are ready, and ends when the peer's process does.
// Device, port and GID are those of the address under which the peer reaches this host.
// mpi: messages of an MPI library (mpi/link.h), and beside them a connection as of verbs.
// auto: shm where both offers name the same boot id and network namespace, else verbs where both
// have a device for each other, else mpi where one MPI launcher started both, else tcp.
//
// Offers are hostile input: Connect checks every field. Thread: one (Connect has others dial).
// Links of the Fabric live until it is destroyed; the listeners only as long as the builder.
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
// One of TransportNames(); kUsage otherwise.
Result<Transport> ParseTransport(std::string_view name);

// Ports that listeners may take, both included; 0 and 0: any.
struct PortRange {
    uint16_t first = 0;
    uint16_t last = 0;
};
// "7001-7010" or "7001"; "": any. Errors: kUsage.
Result<PortRange> ParsePorts(std::string_view text);

struct FabricOptions {
    int rank = 0;
    int size = 1;
    std::vector<std::string> hosts;  // one name a rank, for messages; empty: "localhost"
    Transport transport = Transport::kAuto;
    size_t window_bytes = size_t{4} << 20;  // of each link and direction, the same on all ranks
    uint64_t epoch = 0;
    std::string listen_host;     // the address to listen on for tcp; "": every address
    std::string advertise_host;  // how peers reach this rank; "": listen_host, else 127.0.0.1
    // In place of both: the ways by which each peer may reach this rank, by rank, best first
    // (addresses.h). It listens on their addresses alone; without any, nowhere.
    std::vector<std::vector<Way>> ways;
    PortRange ports;           // of all listeners for tcp
    std::vector<bool> hidden;  // by peer: it can't dial this rank (NAT); empty: all can
    // How the control plane reached rank 0: tried last for its data, too, with the port that it
    // offers (behind a forwarder, rank 0 doesn't know this address). "": nothing.
    std::string root_host;
    std::string rdma_device;         // verbs: "mlx5_0" or "mlx5_0:1"; "": by the peer's address
    int gid_index = -1;              // verbs: of the port's table; -1: chosen
    bool checksum = false;           // collectives check every message; the same on all ranks
    MpiLibrary* mpi = nullptr;       // where an MPI launcher started us; outlives the Fabric
    PeerMonitor* monitor = nullptr;  // outlives the Fabric; may also be set later
};

class FabricBuilder {
  public:
    // Errors: kUsage (options), kIo (no listener), kNotFound and kDenied (no use of RDMA devices).
    static Result<std::unique_ptr<FabricBuilder>> Make(FabricOptions options);
    virtual ~FabricBuilder() = default;

    // This rank's offer to rank `peer`, to be carried over a channel that outsiders can neither
    // read nor change. The first call for a peer makes the offer (for verbs, its queue pair), later
    // ones repeat it.
    virtual std::string OfferTo(int peer) = 0;
    // offers[p] is what rank p's OfferTo(this rank) returned; offers[rank] is ignored. Once only.
    // Errors: kCorrupt (an offer), kUsage (ranks disagree on options), kTimeout (names the ranks
    // that are missing), kPeerLost, kIo.
    virtual Result<Fabric> Connect(const std::vector<std::string>& offers,
                                   const Deadline& deadline) = 0;
    // Once connected: this rank's end of each link, by peer; of itself an empty one.
    virtual const std::vector<WireEnd>& ends() const = 0;
    // Where Connect failed: the peers that this rank could not dial.
    virtual const std::vector<int>& unreached() const = 0;
};

}  // namespace weft::net
