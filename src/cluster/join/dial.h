// Connects rank 0 to the listening workers of other hosts.
//
// A worker's address is "HOST:PORT" or a path, "HOST:PORT>NAME>NAME": the worker at HOST:PORT
// forwards the connection to the worker of its neighbor NAME, and so on (forwards.h). Each worker
// of the path and the caller prove the key to each other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cluster/join/rank_registry.h"
#include "cluster/worker/waiting_line.h"

namespace weft::cluster {

struct Dialled {
    Fd fd;
    Session session;
};

// A caller's talk with the worker's waiting line (waiting_line.h). Thread: the one that dials.
struct LineTalk {
    std::function<PlaceRequest()> request{};          // for the next call; null: no ticket
    std::function<void(const PlaceAnswer&)> heard{};  // after each call of a busy worker
};
// Connects to one worker; both sides prove the key. Retries while the worker refuses the connection
// or is busy, until the deadline, or until `cancel` (net::DialTcp) is readable. Errors: kUsage
// (address), kDenied (key, version), kTimeout, kIo, kCorrupt, kCancelled; all messages name the
// worker.
Result<Dialled> DialWorker(const std::string& address, const Bytes& key, int64_t timeout_ms,
                           const Deadline& deadline, const Identity& identity = {}, int cancel = -1,
                           const LineTalk& line = {});
// The first worker of a path, and the names behind it; an address is a path without names.
struct WorkerPath {
    std::string first;
    std::vector<std::string> names;
};
WorkerPath PathOf(const std::string& address);
// A connection to a port of the last host of a path that has names, other than its worker's port.
// Errors: as DialWorker.
Result<Fd> DialForwarded(const std::string& address, uint16_t port, const Bytes& key,
                         const Deadline& deadline);
// Asks a worker what it runs, and starts nothing there. Errors: as DialWorker.
Result<PlaceAnswer> QueryWorker(const std::string& address, const Bytes& key,
                                const Deadline& deadline);
// Dials the workers at `addresses`, all at the same time, which become ranks 1 and above. patient:
// dials missing workers again until gathering.deadline, and logs which are missing; otherwise fails
// if a worker does not answer in time. Fails at once if a worker refuses the key or the version.
// If other jobs keep some of the workers busy, releases the others, and claims all workers when
// each reserves a slot for this job. Errors: as DialWorker; kCancelled.
Status GatherHosts(const std::vector<std::string>& addresses, const Bytes& key, bool patient,
                   RankRegistry& registry, const Gathering& gathering);

}  // namespace weft::cluster
