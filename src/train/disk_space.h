// The room that a job's folder has for what the job will write: the model is what all of it is for,
// so checkpoints never take the model's room. FOLDER/checkpoints may be a link to another disk, or
// one that is mounted there: each disk is looked at for what it gets.
//
// Errors: kIo, with the numbers and what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::train {

struct RoomPlan {
    std::string folder;
    uint64_t result_bytes = 0;      // of the model, or the adapter
    uint64_t checkpoint_bytes = 0;  // of one, in this folder
    int64_t checkpoints = 0;        // that will be there at most, the one being written included
    int64_t steps = 0;              // rows of the logs
    bool limited = false;           // --time-limit: there will be a stop, which writes a checkpoint
    // MakeRoom may remove older checkpoints. (On a disk without manifests nobody knows which are
    // whole.)
    bool removes_old = true;
};

// Before anything is written. Refused where the result and one checkpoint (two, if more than one is
// kept: the last good one stays until the next is whole) don't fit; a warning where not all of them
// do, with the logs. Where no checkpoints are asked for, a warning says that the result and the
// checkpoint before it don't both fit. The checkpoint of a stop must have room in place of the
// result: refused with a time limit, else a warning. What is Removable counts as free.
Status CheckRoomFor(const RoomPlan& plan);

// Whether there is room for one more checkpoint beside the result, as it is; false: once what is
// Removable has gone. A checkpoint needs what an earlier one of its size takes, so that it can
// replace that on a full disk. `bad` ones (CommitCheckpoint) are not looked at. Errors: kIo: there
// is not enough.
Result<bool> CheckRoomNow(const RoomPlan& plan, const std::vector<std::string>& bad);
// Removes what is Removable until there is room. Nothing is removed where all of it would not do.
// Errors: kIo.
Status MakeRoom(const RoomPlan& plan, const std::vector<std::string>& bad);
// The same for `bytes` of the result. Returns whether anything was removed.
bool MakeResultRoom(const std::string& folder, uint64_t bytes);

}  // namespace weft::train
