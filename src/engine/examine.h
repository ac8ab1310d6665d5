// Checks whether a host could be a rank of a running job (cluster/join_check.h), before the other
// ranks stop for it. The host opens and compares the model, plans and compiles its share on its
// device, and adds up its memory; it reads no weights. Checks that need all ranks follow in the new
// epoch: links, measured shares (--tensor-split auto), and memory that ranks of one host share.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/rank.h"

namespace weft::engine {

// Properties that a joining host must match.
struct Terms {
    std::string fingerprint, adapters;    // of the model and of its adapters
    std::vector<std::string> identities;  // of the ranks' devices, by rank; empty: not compared
    std::vector<std::string> boots;       // by rank: equal for ranks on one host
    std::string header;                   // header of a model that rank 0 streams (weight_stream.h)
};
// CBOR, because the header is binary.
std::string EncodeTerms(const Terms& terms);
// "": no terms are known.
Result<Terms> DecodeTerms(const std::string& bytes);

// Rank 0, once all ranks are ready: gives the terms to the cluster, if it lets hosts join.
Status TellTerms(Rank& rank);

// On a worker. Errors: those of Rank::Make, about this host; kDenied (another model); kUsage (a
// device that computes other bits); kOutOfMemory.
Status Examine(const cluster::JoinRequest& request);

}  // namespace weft::engine
