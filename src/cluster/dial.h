// Rank 0 connects to the listening workers of other hosts.
#pragma once

#include <string>
#include <vector>

#include "cluster/rank_registry.h"

namespace weft::cluster {

struct Dialled {
    Fd fd;
    Session session;
};

// Connects to one worker; both sides prove the key. Retries while the worker refuses the connection
// or is busy, until the deadline, or until `cancel` (net::DialTcp) is readable. Errors: kUsage
// (address), kDenied (key, version), kTimeout, kIo, kCorrupt, kCancelled; all name the worker.
Result<Dialled> DialWorker(const std::string& address, const Bytes& key, int64_t timeout_ms,
                           const Deadline& deadline, const Identity& identity = {},
                           int cancel = -1);
// Ranks 1 and above are the workers at `addresses`, dialed at once. patient: dials missing workers
// again until the deadline of `gathering`, and logs which are missing; otherwise a worker that does
// not answer in time ends the wait. A worker that refuses the key or the version ends the wait at
// once. Errors: as DialWorker; kCancelled.
Status GatherHosts(const std::vector<std::string>& addresses, const Bytes& key, bool patient,
                   RankRegistry& registry, const Gathering& gathering);

}  // namespace weft::cluster
