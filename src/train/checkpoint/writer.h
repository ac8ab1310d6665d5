// Writes checkpoints: each rank its file in the background, then one of them the manifest.
//
//     RankWriter writer(dir, rank);              on every rank
//     WEFT_TRY(writer.Start(step, pieces));      returns at once
//     ... the next forward and backward ...
//     auto file = writer.Finish();               before anything of the pieces changes
//     (each rank's file goes to rank 0)
//     WEFT_TRY(CommitCheckpoint(dir, manifest, keep));    on rank 0
//
// The pieces are read as they are written: no copy of all. A checkpoint counts once its manifest
// has its name, which it gets after all files are on the disk; whatever ends a save before that
// leaves the earlier ones as they were. Files have names of their own in every save, so a save of
// the same step harms none that is there. Thread: one caller at a time for each object.
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

// What a rank holds of one array. `data`: the region's elements, of the array's type; or, where it
// is empty, `read` gives elements from `begin` on, on the writer's thread.
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
    // dir: of the job (--output-dir). cores: which the thread may use; empty: the caller's.
    RankWriter(std::string dir, int rank, std::vector<int> cores = {});
    ~RankWriter();  // ends a save that goes on, and removes what it wrote
    RankWriter(const RankWriter&) = delete;
    RankWriter& operator=(const RankWriter&) = delete;

    // The data must not change, nor go, until Finish. At least one piece; they lie in their arrays
    // and are as long as their regions (CHECK), nor does a save go on (CHECK). Errors: kIo, where
    // the folder can't be made.
    Status Start(int64_t step, std::vector<Piece> pieces);
    // Waits until the file is on the disk. Errors: kIo, naming the folder, what was needed and what
    // to do.
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
    std::vector<std::byte> window_;  // of a piece that is read
    std::thread thread_;
    std::atomic<bool> stop_ = false;
    Result<CheckpointFile> result_ = CheckpointFile();
};

// "DIR/checkpoints/step-00000120".
std::string StepFolder(const std::string& dir, int64_t step);

// After every rank's Finish: writes the manifest (its sequence is set here), and then removes all
// checkpoints but the last `keep` (0: none is removed), and what unfinished saves left behind.
// bad: folders that are known not to be whole, which are neither counted nor removed.
// Errors: kIo, of the manifest; a folder that can't be removed is only told in the log.
Status CommitCheckpoint(const std::string& dir, Manifest manifest, int keep,
                        const std::vector<std::string>& bad = {});

// After a save that failed: the files of the manifest, where they are of no checkpoint.
void RemoveUnfinished(const std::string& dir, const Manifest& manifest);

// What may be removed to make room, the first one first: folders of unfinished saves, damaged ones
// (only where there is a checkpoint), then checkpoints from the oldest to the last but one. `bad`
// ones are not counted.
std::vector<std::string> Removable(const std::string& dir,
                                   const std::vector<std::string>& bad = {});
// Whether the folder of a step is gone; the log tells why it is not.
bool RemoveStep(const std::string& folder);
// A checkpoint that is needed no more, and the folder of checkpoints where it was the only one.
void RemoveCheckpoint(const std::string& folder);
// Whether a folder of a step has a manifest.
bool IsCheckpoint(const std::string& folder);

// On a disk that has no manifests: removes what saves wrote there, but for the steps of `kept`
// ("step-00000120").
void RemoveOthers(const std::string& dir, const std::vector<std::string>& kept);

// The checkpoints of a job, the newest first: their folders. Only what has a manifest that can be
// read; `skipped` (may be null) gets the errors of the others.
std::vector<std::string> ListCheckpoints(const std::string& dir, std::vector<std::string>* skipped);

// What else lies there: folders of steps.
struct Leftovers {
    std::vector<std::string> unfinished;  // no manifest: of saves that did not come to their end
    std::vector<std::string> broken;      // their manifest makes no sense
    std::vector<std::string> aside;       // "step-00000120.bad": found damaged, and renamed
};
Leftovers ListLeftovers(const std::string& dir);
// Those of saves that were killed go, where there is a checkpoint to go on from.
void RemoveUnfinished(const std::string& dir);

}  // namespace weft::train
