// Checks whether a host could be a rank of a running job (cluster/join/join_check.h), before the
// other ranks interrupt their work to admit the host. The host opens the model and compares all its
// bytes with the job's (once, unless its files are rank 0's: model_files/content.h), compiles the
// Program of its share for its device, and checks that it has enough memory. Checks that need all
// ranks follow in the new epoch: links, measured shares (--tensor-split auto), and memory that
// ranks of one host share.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/rank/rank.h"

namespace weft::engine {

// Properties that a joining host must match.
struct Terms {
    std::string fingerprint;              // of the model's header
    std::string copy;                     // rank 0's files (model_files::CopyId)
    std::string identity, adapters;       // of the bytes (ModelIdentity); "": not known
    std::vector<std::string> identities;  // of the ranks' devices, by rank; empty: devices are not
                                          // compared
    std::vector<std::string> boots;       // boot ids of the ranks' hosts, by rank: equal for ranks
                                          // on one host
    std::string header;                   // header of a model that rank 0 streams (weight_stream.h)
    int tp = 0, pp = 0;                   // layout of the ranks, if the job leaves it open
};
// The terms as CBOR, because the header is binary.
std::string EncodeTerms(const Terms& terms);
// "": no terms are known.
Result<Terms> DecodeTerms(const std::string& bytes);

// Call on rank 0 once all ranks are ready. Gives the terms to the cluster, if hosts may join it.
Status SendTerms(Rank& rank);

// The terms that identify the files of `source`. identity: as far as it is known.
Result<Terms> TermsOf(const model_files::ModelSource& source, const ModelIdentity& identity);
// Whether `source` equals rank 0's: compares all bytes of its files, which are read unless the
// cache has their sums (model_files/content.h), or rank 0 has the same copy. The ranks compare the
// parts of partial files. advice: for the error. Errors: kDenied; as ReadContent.
Status CheckCopy(const model_files::ModelSource& source, const Terms& terms,
                 const std::string& advice);

// Runs the checks on the worker that wants to join. Errors: as Rank::Make on this host; kDenied
// (the worker has a different model); kUsage (the worker's device does not compute the same bits as
// its tensor group's, or as all ranks' if these are alike); kOutOfMemory.
Status Examine(const cluster::JoinRequest& request);

}  // namespace weft::engine
