// What a worker that wants to join a job that runs is asked before anything is changed for it:
// whether it could be a rank. So the others answer requests meanwhile, and go on doing so where the
// answer is no.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace weft::cluster {

struct JoinRequest {
    int rank = 0, size = 0;  // which rank it would be, and of how many
    std::string job;         // theirs (Cluster::job)
    std::string terms;  // what the ranks that run have in common (Cluster::SetJoinFingerprint); "":
                        // not known
};

// Runs on the worker's main thread. OK: it could. The error says why not and what to do about it,
// on both hosts.
using JoinValidator = std::function<Status(const JoinRequest& request)>;

}  // namespace weft::cluster
