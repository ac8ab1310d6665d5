// Join request: rank 0 checks whether a worker that wants to join a running job could be a rank,
// before the job changes. The ranks work meanwhile, and continue if the worker cannot join.
#pragma once

#include <functional>
#include <string>

#include "base/folder_limit.h"
#include "base/result.h"

namespace weft::cluster {

struct JoinRequest {
    int rank = 0, size = 0;  // the rank that the worker would be, and the number of ranks with it
    std::string job;         // the job of these ranks (Cluster::job)
    std::string terms;  // properties that the worker must match (Cluster::SetJoinFingerprint); "":
                        // unknown
    FolderLimit folders{};  // as Cluster::folders
};

// Runs on the worker's main thread. OK: the worker could be the rank. Otherwise the error, which
// both hosts print, states the reason and the next step.
using JoinValidator = std::function<Status(const JoinRequest& request)>;

}  // namespace weft::cluster
