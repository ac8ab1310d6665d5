// Checks that a job's folder has space for its result, checkpoints and logs. The result has
// priority: checkpoints never use the space that it needs. FOLDER/checkpoints may be a link to
// another disk, or a mount point, so each disk is checked for the files that go there.
//
// Errors: kIo; the message has the sizes and states what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::train {

struct SpacePlan {
    std::string folder;
    uint64_t result_bytes = 0;      // size of the exported model or adapter
    uint64_t checkpoint_bytes = 0;  // size of the part of one checkpoint in this folder
    int64_t checkpoints = 0;        // most that exist at one time, including the one being written
    int64_t steps = 0;              // rows of the logs
    bool limited = false;           // --time-limit: the job will stop and write a checkpoint
    // MakeSpace may remove older checkpoints. False on a disk without manifests, where complete
    // checkpoints cannot be distinguished from incomplete ones.
    bool removes_old = true;
};

// Checks the space before anything is written. Fails if the result and one checkpoint do not fit
// (two checkpoints if more than one is kept, because the last complete one stays until the next is
// complete). Warns if not all checkpoints and the logs fit. Without periodic checkpoints, warns if
// the result and the checkpoint that is written before it do not both fit. If the checkpoint that a
// stopped job writes does not fit into the space reserved for the result, CheckSpaceFor fails if
// the job has a time limit, else it warns. The sizes of Removable folders (checkpoint/writer.h)
// count as free.
Status CheckSpaceFor(const SpacePlan& plan);

// Whether one more checkpoint fits now, besides the space for the result. Returns false if it fits
// only after Removable folders are removed. A new checkpoint is taken to be as large as an earlier
// one, which it can replace on a full disk. Ignores `bad` folders (CommitCheckpoint). Errors: kIo:
// not enough space.
Result<bool> CheckSpaceNow(const SpacePlan& plan, const std::vector<std::string>& bad);
// Removes Removable folders until there is enough space. Removes nothing if removing all of them
// would not be enough. Errors: kIo.
Status MakeSpace(const SpacePlan& plan, const std::vector<std::string>& bad);
// As MakeSpace, for a result of `bytes` bytes. Returns whether anything was removed.
bool MakeResultSpace(const std::string& folder, uint64_t bytes);

}  // namespace weft::train
