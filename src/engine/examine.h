// Whether a host could be a rank of a job that runs (cluster/join_check.h): what an epoch with it
// would find out, found out before the others stop for it. Its model is opened and compared, its
// share planned and compiled on the device that it would compute on, its memory added up; no weight
// is read. What takes all ranks stays for the epoch itself: links, shares that are measured
// (--tensor-split auto), memory that ranks of one host share.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/rank.h"

namespace weft::engine {

// What newcomers are compared with.
struct Terms {
    std::string fingerprint, adapters;    // of the model, and of its adapters
    std::vector<std::string> identities;  // of the ranks' devices, by rank; empty: not compared
    std::vector<std::string> boots;       // by rank: equal where ranks are on one host
    std::string header;                   // of a model that rank 0 feeds (weight_stream.h)
};
// CBOR: the header is one of bytes, not of text.
std::string EncodeTerms(const Terms& terms);
// "": nothing is known.
Result<Terms> DecodeTerms(const std::string& bytes);

// Rank 0, once all ranks are ready: tells the cluster, where others may join it.
Status TellTerms(Rank& rank);

// On a worker. Errors: those of Rank::Make, which say what is wrong here; kDenied (another model);
// kUsage (a device that gives other bits); kOutOfMemory.
Status Examine(const cluster::JoinRequest& request);

}  // namespace weft::engine
