// Making a Fabric: from offers that ranks exchange over an authenticated control plane to links.
//
//     FabricBuilder::Make(options)         opens listeners, draws a random token for each peer
//     OfferTo(p) for every peer p          -> opaque bytes; the caller carries them to rank p
//     Connect(offers_from_peers, deadline) joins every pair; needs all ranks to call it
//
// Of each pair the higher rank dials and the lower accepts. A connection must present the token
// that its acceptor offered, and is answered with the token that its dialler offered; one that
// does not (a port scan, a rank of an older epoch) is closed and the rest goes on. So the data
// plane is as trustworthy as the channel that carried the offers. Bytes are not encrypted.
//
// shm: a sealed memfd handed over an abstract unix socket, so no name in /dev/shm ever exists and
// nothing is left behind whoever dies when. The socket stays open: its end tells of a dead peer.
// tcp: one connection a pair, TCP_NODELAY, non-blocking, no receiver thread.
// auto: shm where both offers name the same boot id and network namespace, else tcp.
//
// Offers are hostile input: Connect checks every field. Thread: one. Links of the Fabric live
// until it is destroyed; the listeners only as long as the builder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "net/link.h"

namespace weft::net {

enum class Transport { kAuto, kShm, kTcp };
const char* TransportName(Transport transport);
// "auto", "shm" or "tcp"; kUsage otherwise.
Result<Transport> ParseTransport(std::string_view name);

struct FabricOptions {
    int rank = 0;
    int size = 1;
    std::vector<std::string> hosts;  // one name a rank, for messages; empty: "localhost"
    Transport transport = Transport::kAuto;
    size_t window_bytes = size_t{4} << 20;  // of each link and direction, the same on all ranks
    uint64_t epoch = 0;
    std::string listen_host;         // the address to listen on for tcp; "": every address
    std::string advertise_host;      // how peers reach this rank; "": listen_host, else 127.0.0.1
    PeerMonitor* monitor = nullptr;  // outlives the Fabric; may also be set later
};

class FabricBuilder {
  public:
    // Errors: kUsage (options), kIo (no listener).
    static Result<std::unique_ptr<FabricBuilder>> Make(FabricOptions options);
    virtual ~FabricBuilder() = default;

    // This rank's offer to rank `peer`, to be carried over a channel that outsiders can neither
    // read nor change. advertise_host: overrides the option for this one peer.
    virtual std::string OfferTo(int peer, std::string_view advertise_host = {}) const = 0;
    // offers[p] is what rank p's OfferTo(this rank) returned; offers[rank] is ignored. Once only.
    // Errors: kCorrupt (an offer), kUsage (ranks disagree on options), kTimeout (names the ranks
    // that are missing), kPeerLost, kIo.
    virtual Result<Fabric> Connect(const std::vector<std::string>& offers,
                                   const Deadline& deadline) = 0;
};

}  // namespace weft::net
