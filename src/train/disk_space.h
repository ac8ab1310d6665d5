// Checks that a job's folder has room for its result, checkpoints and logs. The result has
// priority: checkpoints never take its room. FOLDER/checkpoints may be a link to another disk or a
// mount point, so each disk is checked for its own files.
//
// Errors: kIo, with the numbers and the next step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::train {

struct RoomPlan {
    std::string folder;
    uint64_t result_bytes = 0;      // of the model or the adapter
    uint64_t checkpoint_bytes = 0;  // of one checkpoint, in this folder
    int64_t checkpoints = 0;        // most at one time, including the one being written
    int64_t steps = 0;              // rows of the logs
    bool limited = false;           // --time-limit: the job will stop and write a checkpoint
    // MakeRoom may remove older checkpoints. (Without manifests on this disk, complete checkpoints
    // cannot be told from incomplete ones.)
    bool removes_old = true;
};

// Checks the room before anything is written. Fails if the result and one checkpoint do not fit
// (two, if more than one is kept: the last good one stays until the next is complete). Warns if not
// all checkpoints and the logs fit. Without periodic checkpoints, it warns if the result and the
// checkpoint before it do not both fit. The checkpoint of a stop must fit in place of the result:
// otherwise it fails with a time limit, and warns without one. Removable folders count as free.
Status CheckRoomFor(const RoomPlan& plan);

// Whether one more checkpoint fits beside the result now; false: it fits once Removable folders are
// gone. The new checkpoint is assumed as large as an earlier one, which it can replace on a full
// disk. Ignores `bad` folders (CommitCheckpoint). Errors: kIo: not enough room.
Result<bool> CheckRoomNow(const RoomPlan& plan, const std::vector<std::string>& bad);
// Removes Removable folders until there is room. Removes nothing if removing all of them would not
// be enough. Errors: kIo.
Status MakeRoom(const RoomPlan& plan, const std::vector<std::string>& bad);
// The same for `bytes` of the result. Returns whether anything was removed.
bool MakeResultRoom(const std::string& folder, uint64_t bytes);

}  // namespace weft::train
