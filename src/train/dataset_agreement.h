// Checks that all ranks train on the same data, and that a resumed job uses the data of its
// checkpoint. Each rank reads its own copy of the files, so the ranks compare identities
// (data/identity.h).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "cluster/cluster.h"
#include "train/checkpoint/reader.h"
#include "train/data/identity.h"
#include "train/data/loader.h"
#include "train/train_job.h"

namespace weft::train {

// The checksum of an adapter's files; 0 for an empty name. Errors: errors of files.
Result<uint64_t> SumOfAdapter(const std::string& folder);

// Call on all ranks before the first step. adapter: the folder of the adapter from which LoRA
// continues, or empty; also compares this adapter's files. Errors, the same on all ranks: kUsage if
// a rank's data differs from rank 0's; the message has the ranks, their hosts and the difference.
// Also those of links and files.
Status AgreeOnData(cluster::Cluster& cluster, const DataIdentity& mine, const std::string& adapter);

// The difference between `mine` and the identity in the checkpoint's `state`, as ": ..." for
// messages. Empty if they are equal, or if the checkpoint is of an older version and has no
// identity (logged if `says`). Errors: kCorrupt if the identity is invalid.
Result<std::string> OtherData(const nlohmann::json& state, const DataIdentity& mine,
                              const std::string& checkpoint, bool says);

// Sets `data` to the day in the checkpoint's `state`, so that a resumed job tokenizes the same
// texts, and returns the day ("" if an older version wrote the checkpoint; day.h). Errors:
// kCorrupt.
Result<std::string> TakeDay(const nlohmann::json& state, const std::string& checkpoint,
                            DataSet& data);

// Seeks the loader to the checkpoint's position in the data. With --new-data, data that differs
// from the checkpoint's is read from its start. Returns the number of updates before the first one
// with this data. says: whether this rank logs. Errors: kUsage: other data without --new-data;
// kCorrupt: the checkpoint's state is invalid.
Result<int64_t> SeekTo(const Checkpoint& checkpoint, const TrainJob& job, const DataIdentity& mine,
                       bool says, Loader& loader);

}  // namespace weft::train
