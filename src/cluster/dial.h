// Connects rank 0 to the listening workers of other hosts.
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
// (address), kDenied (key, version), kTimeout, kIo, kCorrupt, kCancelled; all messages name the
// worker.
Result<Dialled> DialWorker(const std::string& address, const Bytes& key, int64_t timeout_ms,
                           const Deadline& deadline, const Identity& identity = {},
                           int cancel = -1);
// Dials the workers at `addresses`, all at the same time, which become ranks 1 and above. patient:
// dials missing workers again until gathering.deadline, and logs which are missing; otherwise fails
// if a worker does not answer in time. Fails at once if a worker refuses the key or the version.
// Errors: as DialWorker; kCancelled.
Status GatherHosts(const std::vector<std::string>& addresses, const Bytes& key, bool patient,
                   RankRegistry& registry, const Gathering& gathering);

}  // namespace weft::cluster
