// A link over one TCP connection: put is a frame, and whoever waits reads frames into its window.
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

// socket: connected; is made non-blocking here. Errors: kOutOfMemory.
Result<std::unique_ptr<BaseLink>> MakeTcpLink(Progress& progress, PeerName peer, Fd socket,
                                              uint64_t epoch, size_t window_bytes);

}  // namespace weft::net
