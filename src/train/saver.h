// A job's checkpoints: what a rank holds of the model in training, as pieces of arrays
// (train/checkpoint), and back.
//
// Each element of weights and moments is saved by one rank, whoever else has it, too. Saving goes
// on beside the next update's passes, and is waited for before weights change. Thread: as Trainer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "model_files/model_file.h"
#include "train/checkpoint/reader.h"
#include "train/checkpoint/writer.h"
#include "train/disk_space.h"
#include "train/pieces.h"
#include "train/state.h"
#include "train/update/rule.h"

namespace weft::train {

struct SaveOptions {
    std::string folder;        // DIR, for DIR/checkpoints
    int64_t every = 0;         // updates from one checkpoint to the next; 0: none are written
    int64_t keep = 2;          // the last so many; 0: all
    std::string resume;        // empty: from the start; "auto": the newest one in DIR, if there is
                               // one; else a folder
    int64_t max_restarts = 3;  // after a rank was lost; only where checkpoints are written
    double time_limit_s = 0;   // rank 0: stop in time to end so long after the start; 0: never
    int64_t begin_ns = 0;      // rank 0: the start; 0: of the run
    bool interrupts = true;    // SIGINT asks to stop; else it was ignored when rank 0 began
};

// kUsage: what makes no sense.
Status CheckSaveOptions(const SaveOptions& words);

// This rank's pieces. They read the state's values, on the writer's thread.
std::vector<Piece> PiecesOf(const TrainState& state, const UpdateRule& rule,
                            const model_files::ModelSource& source,
                            const std::shared_ptr<const backend::HostSnapshot>& snapshot);
// What the rule keeps of this rank's own part. (Weights are loaded from a CheckpointSource.)
// kUsage: the checkpoint is of another optimizer, which keeps other things.
Status ReadKept(const Checkpoint& checkpoint, const TrainState& state, const UpdateRule& rule,
                UpdateKind kind);

// How much of a checkpoint lies where.
struct SavePlace {
    bool shared = true;       // this rank sees the folder that rank 0 sees
    bool all_shared = true;   // all ranks do
    uint64_t own_bytes = 0;   // of this rank's file
    uint64_t here_bytes = 0;  // of all files on the disk of rank 0's folder
};
// On all ranks alike; rank 0 has taken the folder (output_folder.h). Errors: the cluster's.
Result<SavePlace> AgreeOnPlace(const SaveOptions& words, cluster::Cluster& cluster,
                               const TrainState& state, const UpdateRule& rule,
                               const model_files::ModelSource& source);

struct SaveCounts {
    int64_t saved = 0, failed = 0;
    double waited_s = 0;  // for which updates stood still
};

// Whose room on the disk a checkpoint may take.
enum class SaveRoom {
    kBesideResult,   // the result keeps its room; older checkpoints are removed
    kSpare,          // the result keeps its room, and every older checkpoint stays
    kWithoutResult,  // the result's room is the checkpoint's; older checkpoints are removed
};

class Saver {
  public:
    // All outlive it. model: the source's fingerprint.
    Saver(const SaveOptions& words, cluster::Cluster& cluster, const TrainState& state,
          const UpdateRule& rule, const model_files::ModelSource& source, std::string model);
    // Before the first save. room: rank 0's, of a checkpoint and of what it must leave. bad: as
    // CommitCheckpoint has it.
    void SetRoom(const SavePlace& place, RoomPlan room) {
        place_ = place;
        room_ = std::move(room);
    }
    void SetBad(std::vector<std::string> bad) { bad_ = std::move(bad); }

    // On all ranks, after update `step`: begins to save it, where all ranks have room for it.
    // Nothing is removed where one of them has none. state: rank 0's goes into the manifest.
    Status Begin(int64_t step, model_files::hf::Json state, SaveRoom room);
    // On all ranks, before weights change: waits for it. A save that failed leaves earlier
    // checkpoints as they were; fault() says so, the same on all ranks. Errors: the cluster's.
    Status Finish();
    const SaveCounts& counts() const { return counts_; }
    // On all ranks: the folder of the last checkpoint that was completed; empty: none was.
    const std::string& last() const { return last_; }
    // On all ranks: why the last save failed; empty: it did not.
    const std::string& fault() const { return fault_; }

  private:
    RoomPlan PlanFor(SaveRoom room) const;
    Result<bool> AgreeOnRoom(const RoomPlan& plan);
    Status Commit(const std::vector<std::string>& texts);
    Status RemoveOld();
    void Note(const std::string& fault);

    const SaveOptions words_;
    cluster::Cluster& cluster_;
    const TrainState& state_;
    const UpdateRule& rule_;
    const model_files::ModelSource& source_;
    RankWriter writer_;
    std::optional<Result<CheckpointFile>> written_;  // where updates waited for it
    Manifest manifest_;  // of the save under way
    int keep_ = 0;       // so many checkpoints stay after it; 0: all
    bool under_way_ = false;
    Status begun_;
    SaveCounts counts_;
    std::string last_, fault_;
    SavePlace place_;
    RoomPlan room_;
    std::vector<std::string> bad_;
};

}  // namespace weft::train
