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
// (two checkpoints if more than one is kept, because the last good one stays until the next is
// complete). Warns if not all checkpoints and the logs fit. Without periodic checkpoints, warns if
// the result and the checkpoint written before it do not both fit. If the checkpoint of a stop does
// not fit in place of the result, fails with a time limit, and warns without one. Removable folders
// count as free.
Status CheckRoomFor(const RoomPlan& plan);

// Whether one more checkpoint fits beside the result now. False: it fits only once Removable
// folders are gone. The new checkpoint is assumed as large as an earlier one, which it can replace
// on a full disk. Ignores `bad` folders (CommitCheckpoint). Errors: kIo: not enough room.
Result<bool> CheckRoomNow(const RoomPlan& plan, const std::vector<std::string>& bad);
// Removes Removable folders until there is room. Removes nothing if removing all of them would not
// be enough. Errors: kIo.
Status MakeRoom(const RoomPlan& plan, const std::vector<std::string>& bad);
// As MakeRoom, for `bytes` of the result. Returns whether anything was removed.
bool MakeResultRoom(const std::string& folder, uint64_t bytes);

}  // namespace weft::train
