// Rank 0's way to the listening workers of other hosts.
#pragma once

#include <string>
#include <vector>

#include "cluster/rank_registry.h"

namespace weft::cluster {

struct Dialled {
    Fd fd;
    Session session;
};

// Reaches one worker and proves the key to it, both ways. A worker that refuses the connection or
// is busy is asked again until the deadline, or until `cancel` (net::DialTcp) is readable. Errors:
// kUsage (address), kDenied (key, version), kTimeout, kIo, kCorrupt, kCancelled; all name the
// worker.
Result<Dialled> DialWorker(const std::string& address, const Bytes& key, int64_t timeout_ms,
                           const Deadline& deadline, const Identity& identity = {},
                           int cancel = -1);
// Ranks 1 and above are the workers at `addresses`, which are called at once. patient: who doesn't
// answer is called again until the deadline of `gathering`, with a line that says who is missing;
// else one that doesn't answer within it ends the wait. Who refuses the key or the version ends it
// at once. Errors: as of DialWorker; kCancelled.
Status GatherHosts(const std::vector<std::string>& addresses, const Bytes& key, bool patient,
                   RankRegistry& registry, const Gathering& gathering);

}  // namespace weft::cluster
