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
    // Manifests lie here. Where they lie on another host's disk, no folder of a step has one.
    bool has_manifests = true;
};

// Before anything is written. Refused where the model and one checkpoint (two, if more than one is
// kept: the last good one stays until the next is whole) don't fit; a warning where not all of them
// do, with the logs. Where no checkpoints are asked for, that of a stop must have room in place of
// the model: refused with a time limit, else a warning. What RemoveOldest would remove counts as
// free.
Status CheckRoomFor(const RoomPlan& plan);

// Room for one more checkpoint beside the model: what RemoveOldest removes goes for it, but never
// the newest checkpoint; `bad` ones (CommitCheckpoint) are not looked at. Errors: kIo: there is
// none.
Status MakeRoom(const RoomPlan& plan, const std::vector<std::string>& bad);

}  // namespace weft::train
