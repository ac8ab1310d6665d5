// Whether all ranks have the same model, by all bytes of its files (model_files/content.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/start/model_identity.h"
#include "model_files/model_file.h"

namespace weft::engine {

struct VerifyOptions {
    bool needed = false;  // the identity is needed even if all ranks read the same copy
    bool anew = false;    // --verify-model: one rank of each machine sums all bytes now, and rank 0
                          // logs the result
};

// Collective, after the ranks loaded their shards. The files that several ranks see as the same
// unchanged ones (model_files::CopyId) are one copy. If there are several copies, or the identity
// is needed, one rank of each copy reads the bytes that were not read while loading, unless the
// sums are in the cache; then all ranks compare the copies. From then on, reads of the files are no
// longer hashed. ticks: grows while this rank reads. Thread: reads on all cores of the process.
// Errors: kDenied: the copies differ; as model_files::ReadContent.
Result<ModelIdentity> AgreeOnModel(cluster::Cluster& cluster,
                                   const model_files::ModelSource& source,
                                   const VerifyOptions& options, std::atomic<int64_t>& ticks);

// All files of the model and of its adapters.
std::vector<const model_files::WeightFile*> AllFiles(const model_files::ModelSource& source);

}  // namespace weft::engine
