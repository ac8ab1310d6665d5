// That a run learns from one thing: all ranks from the same data, and a checkpoint's run from those
// that it was begun with. Ranks read their own copies of the files, so this is compared.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "cluster/cluster.h"
#include "train/data/identity.h"

namespace weft::train {

// All ranks call it before the first step. adapter: the folder that LoRA goes on from, or empty; it
// is read whole. Errors, the same on all ranks: kUsage where a rank differs from rank 0: which
// ranks, on which hosts, and in what; those of links and files.
Status AgreeOnData(cluster::Cluster& cluster, const DataIdentity& mine, const std::string& adapter);

// In what the data of a checkpoint with this state differ from `mine`: ": ..." for people; empty
// where they don't, and where the checkpoint, which is of an older version, doesn't tell (`says`:
// that is logged). kCorrupt where what it tells makes no sense.
Result<std::string> OtherData(const nlohmann::json& state, const DataIdentity& mine,
                              const std::string& checkpoint, bool says);

}  // namespace weft::train
