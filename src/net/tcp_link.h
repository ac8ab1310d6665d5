// A link over one TCP connection. A put sends a frame (frame.h), in clear or in sealed records
// (record.h), and a wait reads frames into the window.
//
// There is no receiver thread: Wait and Put of any link receive on all sockets of the Fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"
#include "net/record.h"
#include "net/socket.h"
#include "net/wait_policy.h"

namespace weft::net {

// socket: connected; MakeTcpLink makes it non-blocking. keys: null: the link is not encrypted.
// Errors: kOutOfMemory.
Result<std::unique_ptr<BaseLink>> MakeTcpLink(Progress& progress, PeerName peer, Fd socket,
                                              uint64_t epoch, size_t window_bytes,
                                              const std::optional<LinkKeys>& keys = {});

}  // namespace weft::net
