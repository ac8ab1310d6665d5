// A link over an MPI library: a put is a message, and waits test for messages.
//
// A small put is one message (inbox.h) in a send slot, so Put returns at once. The rest of a larger
// put is sent from the caller's memory, and Put waits for it; it receives meanwhile, so two ranks
// that both send never deadlock. Each link keeps a few receives posted. MPI does not report a dead
// peer; a TCP connection to the peer and the monitor do.
//
// A link that ends in order says goodbye on that connection and cancels its receives. After a fault
// (the monitor Failed, or MPI returned an error) the link makes no more MPI calls: see
// MpiLibrary::Abandon.
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
    int rank = 0;                // of the peer, in MPI_COMM_WORLD
    uint64_t send_token = 0;     // offered by the peer for this link
    uint64_t receive_token = 0;  // offered by this rank
};

// library: started; outlives the link. socket: connected to the peer, without unread bytes. Errors:
// kOutOfMemory, kIo.
Result<std::unique_ptr<BaseLink>> MakeMpiLink(Progress& progress, PeerName peer,
                                              MpiLibrary& library, const MpiPlace& place, Fd socket,
                                              size_t window_bytes);

}  // namespace weft::net
