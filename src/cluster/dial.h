// Rank 0's way to the listening workers of other hosts.
#pragma once

#include <string>
#include <vector>

#include "cluster/handshake.h"
#include "cluster/socket.h"

namespace weft::cluster {

struct Dialled {
    Fd fd;
    Session session;
};

// Reaches one worker and proves the key to it, both ways. A worker that refuses the connection or
// is busy is asked again until the deadline. Errors: kUsage (address), kDenied (key,
// version), kTimeout, kIo, kCorrupt; all name the worker.
Result<Dialled> DialWorker(const std::string& address, const Bytes& key, int64_t timeout_ms,
                           const Deadline& deadline, const Identity& identity = {});
// All of them at once; the first error by rank, the others as log lines.
Result<std::vector<Dialled>> DialWorkers(const std::vector<std::string>& addresses,
                                         const Bytes& key, int64_t timeout_ms,
                                         const Deadline& deadline);

}  // namespace weft::cluster
