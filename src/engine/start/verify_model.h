// --verify-model: compares the contents of the model's files on all hosts.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "cluster/cluster.h"
#include "model_files/content.h"
#include "model_files/model_file.h"

namespace weft::engine {

// Collective. One rank for each copy (a host's, or one of several on a host) hashes the files of
// `source` (model_files/content.h), unless `content` has the hashes of an earlier call. Then all
// ranks compare the copies. Rank 0 logs the result.
// ticks: grows while this rank reads. Thread: reads on all cores of the process.
// Errors: kDenied: the copies differ; those of model_files::ReadContent.
Status VerifyModel(cluster::Cluster& cluster, const model_files::ModelSource& source,
                   std::optional<model_files::Content>& content, std::atomic<int64_t>& ticks);

}  // namespace weft::engine
