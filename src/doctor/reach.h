// Tests whether ranks can connect to each other: every host listens on a worker's ports for a few
// seconds and connects to the other hosts' ports. `weft doctor --hosts` runs it on all hosts at
// once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::doctor {

inline constexpr int64_t kReachMs = 4000;

struct ReachOptions {
    std::vector<std::string> addresses;  // IPv4 addresses of the other hosts
    // A worker's control port, and one port of the range from which the system chooses data ports.
    std::vector<uint16_t> ports;
    size_t peers = 0;  // stop early once each port here has this many connections
    int64_t timeout_ms = kReachMs;
};

// Listens on each port (unless the port is in use), connects to each port of each address, and
// retries while a peer refuses. Returns lines "ADDRESS PORT OUTCOME"; the outcome is "open",
// "refused", "filtered" (no answer), or "failed: WHY". Takes at most timeout_ms.
Result<std::string> ReachPeers(const ReachOptions& options);

// "7000,40123 2 10.0.0.2,10.0.0.3", and the time in ms if it is not the default: the argument of
// `weft doctor --reach`. ParseReach returns empty lists if `text` is malformed.
std::string ReachText(const ReachOptions& options);
ReachOptions ParseReach(const std::string& text);

}  // namespace weft::doctor
