// A link over an MPI library. A put is sent as an MPI message; a wait tests whether messages have
// arrived.
//
// Put copies a small put into a send buffer as one message (inbox.h) and returns at once. The rest
// of a larger put is sent from the caller's memory, and Put waits until the rest is sent. While Put
// waits, it also receives messages, so two ranks that send to each other never deadlock. Each link
// keeps a few receives posted. MPI does not report a dead peer, so the PeerMonitor detects it by a
// TCP connection to the peer.
//
// When the link's Fabric is destroyed, the link sends a goodbye on the TCP connection and cancels
// its receives. After a fault (PeerMonitor::Failed, or an MPI error), the link makes no more MPI
// calls: see MpiLibrary::Abandon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "net/mpi/library.h"
#include "net/socket.h"
#include "net/wait_policy.h"

namespace weft::net {

struct MpiPlace {
    int rank = 0;                // the peer's rank in MPI_COMM_WORLD
    uint64_t send_token = 0;     // offered by the peer for this link
    uint64_t receive_token = 0;  // offered by this rank
};

// library: must be started, and outlive the link. socket: connected to the peer, without unread
// bytes. Errors: kOutOfMemory, kIo.
Result<std::unique_ptr<BaseLink>> MakeMpiLink(Progress& progress, PeerName peer,
                                              MpiLibrary& library, const MpiPlace& place, Fd socket,
                                              size_t window_bytes);

}  // namespace weft::net
