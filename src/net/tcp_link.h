// A link over one TCP connection: a put is a frame, and waits read frames into the window.
//
// No receiver thread: Wait and Put of any link of the Fabric receive on all of its sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "net/socket.h"
#include "net/wait_policy.h"

namespace weft::net {

// socket: connected; this makes it non-blocking. Errors: kOutOfMemory.
Result<std::unique_ptr<BaseLink>> MakeTcpLink(Progress& progress, PeerName peer, Fd socket,
                                              uint64_t epoch, size_t window_bytes);

}  // namespace weft::net
