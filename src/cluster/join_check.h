// Join request: rank 0 asks a worker that wants to join a running job whether it could be a rank,
// before anything changes. Meanwhile the ranks serve requests. They continue if the worker cannot
// join.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace weft::cluster {

struct JoinRequest {
    int rank = 0, size = 0;  // the would-be rank, and the number of ranks
    std::string job;         // the job of these ranks (Cluster::job)
    std::string terms;  // common properties of the ranks (Cluster::SetJoinFingerprint); "": unknown
};

// Runs on the worker's main thread. OK: it could be the rank. The error says why not and what to do
// about it, on both hosts.
using JoinValidator = std::function<Status(const JoinRequest& request)>;

}  // namespace weft::cluster
