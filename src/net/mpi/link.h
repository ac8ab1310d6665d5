// A link over an MPI library: a put is a message, and whoever waits tests for messages.
//
// A small put is one message (inbox.h), copied into a send slot, so that it returns at once. The
// rest of a larger one is sent from the caller's memory, which Put must wait for; it receives
// meanwhile, so that two ranks that both send never deadlock. Each link keeps a few receives
// posted. MPI tells nothing of a dead peer: a TCP connection beside it does, and the monitor.
//
// A link that ends well says goodbye there and takes its receives back. After a fault (the monitor
// Failed, or MPI returned an error) MPI is left alone: see MpiLibrary::Abandon.
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
    int rank = 0;                // the peer's, in MPI_COMM_WORLD
    uint64_t send_token = 0;     // that the peer offered for this link
    uint64_t receive_token = 0;  // that we did
};

// library: started; outlives the link. socket: connected to the peer, nothing unread in it. Errors:
// kOutOfMemory, kIo.
Result<std::unique_ptr<BaseLink>> MakeMpiLink(Progress& progress, PeerName peer,
                                              MpiLibrary& library, const MpiPlace& place, Fd socket,
                                              size_t window_bytes);

}  // namespace weft::net
