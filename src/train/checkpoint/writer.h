// Writes checkpoints: each rank writes its file in the background, then one rank writes the
// manifest.
//
//     RankWriter writer(dir, rank);              on every rank
//     WEFT_TRY(writer.Start(step, pieces));      returns at once
//     ... the next forward and backward pass ...
//     auto file = writer.Finish();               before the pieces change
//     (each rank's file goes to rank 0)
//     WEFT_TRY(CommitCheckpoint(dir, manifest, keep));    on rank 0
//
// The writer reads the pieces while it writes them, without a copy. A checkpoint becomes valid when
// its manifest gets its final name, after all files are on disk. If a save fails before that,
// earlier checkpoints are unchanged. Every save uses new file names, so a second save of the same
// step does not damage the first. Thread: one caller at a time per object.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "train/checkpoint/manifest.h"

namespace weft::train {

// The part of one array that a rank holds. data: the region's elements, of the array's type. If
// `data` is empty, the writer's thread calls `read`, which fills `out` with elements from element
// `begin` of the region on.
struct Piece {
    Array array;
    TensorRegion region;
    std::span<const std::byte> data = {};
    std::function<Status(int64_t begin, std::span<std::byte> out)> read = {};

    uint64_t bytes() const {
        return static_cast<uint64_t>(region.elements()) *
               model_files::hf::SafeTypeBytes(array.type);
    }
};

class RankWriter {
  public:
    // dir: the job's folder (--output-dir). cores: cores on which the writer's thread runs; empty:
    // the caller's cores.
    RankWriter(std::string dir, int rank, std::vector<int> cores = {});
    ~RankWriter();  // cancels a running save and removes its files
    RankWriter(const RankWriter&) = delete;
    RankWriter& operator=(const RankWriter&) = delete;

    // Starts a save. The pieces' data must neither change nor be freed until Finish. CHECKs that
    // there is at least one piece, that pieces lie in their arrays and have the size of their
    // regions, and that no save is running. A link in the place of the step's folder is removed, so
    // that nothing is written where it leads. Errors: kIo: the folder can't be created.
    Status Start(int64_t step, std::vector<Piece> pieces);
    // Waits until the file is on disk. Errors: kIo; the message has the folder, the needed size and
    // what to do.
    Result<CheckpointFile> Finish();
    bool running() const { return thread_.joinable(); }

  private:
    void Main();
    Result<CheckpointFile> Write();
    Result<std::span<const std::byte>> Window(const Piece& piece, uint64_t begin);

    std::string dir_;
    int rank_;
    std::vector<int> cores_;
    int64_t step_ = 0;
    std::vector<Piece> pieces_;
    std::vector<std::byte> window_;  // elements of a piece with `read`
    std::thread thread_;
    std::atomic<bool> stop_ = false;
    Result<CheckpointFile> result_ = CheckpointFile();
};

// "DIR/checkpoints/step-00000120".
std::string StepFolder(const std::string& dir, int64_t step);

// Call after every rank's Finish. Sets Manifest::sequence, opens the checkpoint if all its files
// are on this disk, and writes the manifest. Then removes leftovers of unfinished saves, and all
// checkpoints except the last `keep` (0: keeps all). bad: folders that are known to be incomplete;
// they are neither counted nor removed. Errors: kIo if the checkpoint can't be opened or the
// manifest can't be written; a folder that can't be removed is only logged.
Status CommitCheckpoint(const std::string& dir, Manifest manifest, int keep,
                        const std::vector<std::string>& bad = {});

// Call after a failed save: removes the manifest's files if they belong to no checkpoint.
void RemoveUnfinished(const std::string& dir, const Manifest& manifest);

// Folders that may be removed to free space, in order of removal: unfinished saves, damaged folders
// (only if there is a checkpoint), then all checkpoints but the newest, the oldest first. `bad`
// folders are not counted.
std::vector<std::string> Removable(const std::string& dir,
                                   const std::vector<std::string>& bad = {});
// Removes the folder of a step, except files that Weft did not write. Returns false if the folder
// is still there; the log has any error.
bool RemoveStep(const std::string& folder);
// Removes a checkpoint that is no longer needed, and the folder of checkpoints if it becomes empty.
void RemoveCheckpoint(const std::string& folder);
// Whether a step's folder has a manifest.
bool IsCheckpoint(const std::string& folder);

// Removes all saves except those of the steps in `kept` ("step-00000120"). For a rank that saves to
// its own disk, where there are no manifests.
void RemoveOthers(const std::string& dir, const std::vector<std::string>& kept);

// Returns the first path that has the name of a step's folder and that Weft did not write: a folder
// without files of a save, a link without a checkpoint at its end, or a file. Returns "" if Weft
// wrote all such paths.
std::string ForeignStep(const std::string& dir);
// Removes what saves wrote to the folders of all steps; files that Weft did not write stay. Errors:
// kIo.
Status RemoveSteps(const std::string& dir);

// Folders of a job's checkpoints with a readable manifest, the newest first. skipped (may be null):
// receives the errors of the other manifests.
std::vector<std::string> ListCheckpoints(const std::string& dir, std::vector<std::string>* skipped);

// Folders of steps that are not valid checkpoints.
struct Leftovers {
    std::vector<std::string> unfinished;  // no manifest: the save did not finish
    std::vector<std::string> broken;      // the manifest is invalid
    std::vector<std::string> aside;       // "step-00000120.bad": found damaged and renamed
};
Leftovers ListLeftovers(const std::string& dir);
// Removes the leftovers of killed saves, if there is a checkpoint to resume from.
void RemoveUnfinished(const std::string& dir);

}  // namespace weft::train
