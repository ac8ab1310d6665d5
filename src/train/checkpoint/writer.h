// Writes checkpoints: each rank writes its file in the background, then one rank writes the
// manifest.
//
//     RankWriter writer(dir, rank);              on every rank
//     WEFT_TRY(writer.Start(step, pieces));      returns at once
//     ... the next forward and backward ...
//     auto file = writer.Finish();               before the pieces change
//     (each rank's file goes to rank 0)
//     WEFT_TRY(CommitCheckpoint(dir, manifest, keep));    on rank 0
//
// Pieces are read as they are written, without a copy. A checkpoint becomes valid when its manifest
// gets its final name, after all files are on disk. If a save fails before that, earlier
// checkpoints are unchanged. Every save uses new file names, so a second save of the same step does
// not damage the first. Thread: one caller at a time per object.
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

// The part of one array that a rank holds. `data`: the region's elements, of the array's type. If
// `data` is empty, `read` returns elements from `begin` on, on the writer's thread.
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
    // dir: the job's folder (--output-dir). cores: for the thread; empty: the caller's.
    RankWriter(std::string dir, int rank, std::vector<int> cores = {});
    ~RankWriter();  // cancels a running save and removes its files
    RankWriter(const RankWriter&) = delete;
    RankWriter& operator=(const RankWriter&) = delete;

    // The data must neither change nor be freed until Finish. CHECKs: at least one piece, pieces
    // lie in their arrays and have the size of their regions, and no save is running. Errors: kIo:
    // the folder can't be created.
    Status Start(int64_t step, std::vector<Piece> pieces);
    // Waits until the file is on disk. Errors: kIo, naming the folder, the needed size and the next
    // step.
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
    std::vector<std::byte> window_;  // of a piece with `read`
    std::thread thread_;
    std::atomic<bool> stop_ = false;
    Result<CheckpointFile> result_ = CheckpointFile();
};

// "DIR/checkpoints/step-00000120".
std::string StepFolder(const std::string& dir, int64_t step);

// Call after every rank's Finish. Writes the manifest (and sets its sequence), then removes all
// checkpoints except the last `keep` (0: keeps all) and the leftovers of unfinished saves. bad:
// folders known to be incomplete, which are neither counted nor removed.
// Errors: kIo, of the manifest; a folder that can't be removed is only logged.
Status CommitCheckpoint(const std::string& dir, Manifest manifest, int keep,
                        const std::vector<std::string>& bad = {});

// After a failed save: removes the files of the manifest if they belong to no checkpoint.
void RemoveUnfinished(const std::string& dir, const Manifest& manifest);

// Folders that may be removed to make room, in order of removal: unfinished saves, damaged folders
// (only if there is a checkpoint), then checkpoints from the oldest to the last but one. `bad`
// folders are not counted.
std::vector<std::string> Removable(const std::string& dir,
                                   const std::vector<std::string>& bad = {});
// Removes the folder of a step. False: it is still there; the log says why.
bool RemoveStep(const std::string& folder);
// Removes a checkpoint that is no longer needed, and the folder of checkpoints if it becomes empty.
void RemoveCheckpoint(const std::string& folder);
// Whether a step's folder has a manifest.
bool IsCheckpoint(const std::string& folder);

// For a rank's own disk, which has no manifests: removes all saves except the steps of `kept`
// ("step-00000120").
void RemoveOthers(const std::string& dir, const std::vector<std::string>& kept);

// Folders of a job's checkpoints with a readable manifest, the newest first. `skipped` (may be
// null) receives the errors of the others.
std::vector<std::string> ListCheckpoints(const std::string& dir, std::vector<std::string>* skipped);

// Other folders of steps.
struct Leftovers {
    std::vector<std::string> unfinished;  // no manifest: the save did not finish
    std::vector<std::string> broken;      // the manifest is invalid
    std::vector<std::string> aside;       // "step-00000120.bad": found damaged and renamed
};
Leftovers ListLeftovers(const std::string& dir);
// Removes the leftovers of killed saves, if there is a checkpoint to resume from.
void RemoveUnfinished(const std::string& dir);

}  // namespace weft::train
