// Whether ranks can connect to each other: every host listens on the ports of a worker for a few
// seconds and connects to those of the others. `weft doctor --hosts` runs it on all hosts at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::doctor {

struct ReachOptions {
    std::vector<std::string> addresses;  // of the other hosts, IPv4
    // The port of control connections, and one that stands for the ports of data links, which the
    // system chooses.
    std::vector<uint16_t> ports;
    size_t peers = 0;  // connections to each port of this host that end the wait early
    int64_t timeout_ms = 4000;
};

// Listens on each port (a port in use already has a listener), connects to each port of each
// address, and tries again while a peer refuses. Returns a line "ADDRESS PORT OUTCOME" for each:
// "open", "refused", "filtered" (no answer), or "failed: WHY". Takes at most timeout_ms.
std::string ReachPeers(const ReachOptions& options);

// "7000,40123 2 10.0.0.2,10.0.0.3": how `weft doctor --reach` is told; an empty list where it is
// malformed.
std::string ReachText(const ReachOptions& options);
ReachOptions ParseReach(const std::string& text);

}  // namespace weft::doctor
