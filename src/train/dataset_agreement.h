// Checks that all ranks train on the same data, and that a resumed job uses the data of its
// checkpoint. Ranks read their own copies of the files, so they compare identities.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "cluster/cluster.h"
#include "train/data/identity.h"

namespace weft::train {

// All ranks call it before the first step. adapter: the folder of the adapter that LoRA continues
// from, or empty; it is read whole. Errors, the same on all ranks: kUsage if ranks differ from rank
// 0, naming the ranks, their hosts and the difference; those of links and files.
Status AgreeOnData(cluster::Cluster& cluster, const DataIdentity& mine, const std::string& adapter);

// The difference between `mine` and the data of the checkpoint with this state, as ": ..." for
// people. Empty if they are equal, or if the checkpoint is of an older version without this record
// (logged if `says`). kCorrupt if the record is invalid.
Result<std::string> OtherData(const nlohmann::json& state, const DataIdentity& mine,
                              const std::string& checkpoint, bool says);

}  // namespace weft::train
