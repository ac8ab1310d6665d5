// Makes a Fabric, the links from this rank to the others: ranks exchange offers over authenticated
// control connections, then connect the links.
//
//     FabricBuilder::Make(options)         opens listeners, draws a random token for each peer
//     OfferTo(p) for every peer p          -> opaque bytes; the caller carries them to rank p
//     Connect(offers_from_peers, deadline) connects all links; all ranks must call it
//
// The higher rank of each pair dials, and the lower rank accepts. The dialing rank must present the
// token from the offer of the accepting rank, which answers with the token from the dialing rank's
// offer. Other connections (a port scan, a rank of an older epoch) are closed. A tcp link between
// two hosts is encrypted and authenticated (record.h) with keys of secrets in the two offers, so it
// is as trustworthy as the channel that carried the offers. Links over verbs and mpi are not: an
// attacker who can read or change packets of that network can read or change their data.
//
// If only one rank of a pair can be dialed (Offer::hidden), the other rank dials.
// shm: a sealed memfd, passed over an abstract unix socket. It has no name in /dev/shm, so nothing
// remains after a crash. The socket stays open; if the peer dies, the kernel closes it.
// tcp: one connection per pair, TCP_NODELAY, non-blocking, no receiver thread. The dialing rank
// tries the addresses in the offer (Offer::tcp_host, tcp_more) in order, each for about a second,
// and then the silent ones again, until the other rank answers or the deadline passes. verbs: for
// each peer, a queue pair that is set up from the offers, and a TCP connection. The TCP connection
// exchanges the tokens, signals when both ends are ready, and ends when the peer's process ends.
// Device, port and GID belong to the address by which the peer reaches this host. mpi: messages of
// an MPI library (mpi/link.h), and a TCP connection as for verbs.
// auto: shm if both offers name the same boot id and network namespace; else verbs if both ranks
// have an RDMA device that reaches the other; else mpi if one MPI launcher started both; else tcp.
//
// Offers are hostile input: Connect checks every field. Thread: one caller; Connect dials on
// threads of its own. The links live as long as the Fabric, the listeners as long as the builder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/result.h"
#include "net/addresses.h"
#include "net/link.h"
#include "net/wire_end.h"

namespace weft::net {

class MpiLibrary;

enum class Transport : uint8_t { kAuto, kShm, kTcp, kVerbs, kMpi };
const char* TransportName(Transport transport);
std::vector<std::string> TransportNames();
// name: one of TransportNames(). Errors: kUsage.
Result<Transport> ParseTransport(std::string_view name);

// Which tcp links are encrypted. Packets between two ranks of one kernel never leave it. kNever:
// the user declares that the network is trusted. kAlways: for tests and measurements on one host.
enum class Encryption : uint8_t { kBetweenHosts, kNever, kAlways };

// Stands for an address in an offer: the peer then connects to this rank by FabricOptions::forward.
inline constexpr const char* kForwardHost = "forward";

// Whether two ranks get a link. kSpare: only if they reach each other before the deadline of
// Connect. At that time, one of the two may have a link that the other lacks: the caller compares
// both ends.
enum class LinkNeed { kNeeded, kSpare, kNone };

// Ports for listeners, from `first` to `last`; 0 and 0: any port.
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
    size_t window_bytes = size_t{4} << 20;  // per link and direction; must be the same on all ranks
    uint64_t epoch = 0;
    std::string listen_host;     // listening address for tcp; "": every address
    std::string advertise_host;  // address that peers dial; "": listen_host or, if that is "",
                                 // 127.0.0.1
    // Replaces listen_host and advertise_host. ways[p]: ways by which peer p may reach this rank,
    // best first (addresses.h). This rank listens only on the addresses of these ways.
    std::vector<std::vector<Way>> ways;
    std::vector<LinkNeed> needs;  // by peer; the same at both ends of a pair. Empty: all are needed
    // Connects to a port of a peer that has the address kForwardHost. Called on several threads.
    std::function<Result<Fd>(int peer, uint16_t port, const Deadline& deadline)> forward{};
    PortRange ports;           // for all tcp listeners
    std::vector<bool> hidden;  // hidden[p]: peer p can't dial this rank (NAT); empty: all can
    // The address by which this rank's control connection reached rank 0. Data links to rank 0 try
    // this address last, with the port from rank 0's offer: behind a port forwarder, rank 0 can't
    // find out its own public address. "": none.
    std::string root_host;
    std::string rdma_device;  // verbs: "mlx5_0" or "mlx5_0:1"; "": chosen by address
    int gid_index = -1;       // verbs: index in the port's GID table; -1: chosen
    bool checksum = false;    // collectives verify every message; must be the same on all
                              // ranks
    Encryption encryption = Encryption::kBetweenHosts;  // must be the same on all ranks
    MpiLibrary* mpi = nullptr;       // set if an MPI launcher started this process; must outlive
                                     // the Fabric
    PeerMonitor* monitor = nullptr;  // must outlive the Fabric; may also be set later
};

class FabricBuilder {
  public:
    // Errors: kUsage (invalid options), kIo (cannot listen), kNotFound and kDenied (no usable RDMA
    // device).
    static Result<std::unique_ptr<FabricBuilder>> Make(FabricOptions options);
    virtual ~FabricBuilder() = default;

    // This rank's offer to rank `peer`. Send it over a channel that outsiders can neither read nor
    // change. The first call for a peer makes the offer (and, for verbs, the queue pair); later
    // calls return the same offer.
    virtual std::string OfferTo(int peer) = 0;
    // Connects this rank to all others that it needs. offers[p]: the result of OfferTo(this rank)
    // on rank p; this rank's own entry and the entries of peers without a link are ignored. Call it
    // once. Errors: kCorrupt (an invalid offer), kUsage (ranks have different options), kTimeout
    // (the message names the missing ranks), kPeerLost, kIo.
    virtual Result<Fabric> Connect(const std::vector<std::string>& offers,
                                   const Deadline& deadline) = 0;
    // After Connect: this rank's end of each link, by peer; the rank's own entry is empty.
    virtual const std::vector<WireEnd>& ends() const = 0;
    // After a failed Connect: peers that this rank could not dial.
    virtual const std::vector<int>& unreached() const = 0;
};

}  // namespace weft::net
