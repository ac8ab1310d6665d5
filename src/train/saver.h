// Writes a job's checkpoints: each rank's parts of the model in training as pieces of arrays
// (train/checkpoint). Also reads the optimizer state back.
//
// Only one rank saves each element of weights and optimizer state, even if several ranks hold it.
// Saving overlaps the forward and backward passes of the next update, and finishes before weights
// change. Thread: as Trainer.
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
    std::string folder;        // DIR; checkpoints are in DIR/checkpoints
    int64_t every = 0;         // updates between checkpoints; 0: none
    int64_t keep = 2;          // number of checkpoints to keep; 0: all
    bool best = false;         // also keep the checkpoint of the evaluation with the lowest loss,
                               // and write the result from it
    std::string resume;        // "": start from the beginning; "auto": resume from the newest
                               // checkpoint in DIR, if any; otherwise the folder to resume from
    int64_t max_restarts = 3;  // most restarts after the loss of a rank; only with checkpoints
    double time_limit_s = 0;   // rank 0: stop early enough to end within this time; 0: no limit
    int64_t begin_ns = 0;      // rank 0: when the time limit began; 0: at the start of the run
    bool interrupts = true;    // SIGINT requests a stop; false: SIGINT was ignored when rank 0
                               // started
};

// Errors: kUsage: inconsistent options.
Status CheckSaveOptions(const SaveOptions& words);

// The pieces that this rank saves; adjacent matrices of a stack are one piece. The pieces read the
// values from `snapshot` on the writer's thread.
std::vector<Piece> PiecesOf(const TrainState& state, const UpdateRule& rule,
                            const model_files::ModelSource& source,
                            const std::shared_ptr<const backend::HostSnapshot>& snapshot);
// Whether the ranks' states together have all weights of the checkpoint.
bool HasWeights(const TrainState& state, const Checkpoint& checkpoint);

// Restores the optimizer state of this rank's own part, with the average of the weights if
// `averages`. (A CheckpointSource loads the weights.)
// Errors: kUsage: the checkpoint has the state of another optimizer.
Status ReadKept(const Checkpoint& checkpoint, const TrainState& state, const UpdateRule& rule,
                const UpdateOptions& options, bool averages);

// The locations and sizes of a checkpoint's files.
struct SavePlace {
    bool shared = true;       // whether this rank sees rank 0's folder
    bool all_shared = true;   // whether all ranks see it
    uint64_t own_bytes = 0;   // size of this host's files on this rank's disk, if not shared
    uint64_t here_bytes = 0;  // size of all files on the disk of rank 0's folder
};
// Determines the locations of files. Collective. Rank 0 must have locked the folder
// (output_folder.h). Errors: the cluster's; kUnsupported: this rank's file could not be read again.
Result<SavePlace> AgreeOnPlace(const SaveOptions& words, cluster::Cluster& cluster,
                               const TrainState& state, const UpdateRule& rule,
                               const model_files::ModelSource& source);

struct SaveCounts {
    int64_t saved = 0, failed = 0;
    double waited_s = 0;  // seconds in which updates waited for saves
};

// Which disk space a checkpoint may use.
enum class SaveSpace {
    kBesideResult,   // leaves the space for the result; removes older checkpoints
    kSpare,          // leaves the space for the result; keeps all older checkpoints
    kWithoutResult,  // may use the space for the result; removes older checkpoints
};

class Saver {
  public:
    // All arguments must outlive this object. model: the source's fingerprint.
    Saver(const SaveOptions& words, cluster::Cluster& cluster, const TrainState& state,
          const UpdateRule& rule, const model_files::ModelSource& source, std::string model);
    // Call SetSpace and SetBad before the first save. room: on rank 0, the sizes of checkpoints and
    // result. bad: as in CommitCheckpoint.
    void SetSpace(const SavePlace& place, SpacePlan room) {
        place_ = place;
        room_ = std::move(room);
    }
    void SetBad(std::vector<std::string> bad) { bad_ = std::move(bad); }

    // From the next save on, this checkpoint is kept and does not count toward the limit.
    void SetBest(std::string folder) { best_ = std::move(folder); }
    // Collective. Call after update `step`: begins a save if all ranks have space for it; otherwise
    // removes nothing. state: stored in the manifest; only rank 0's is used.
    Status Begin(int64_t step, model_files::hf::Json state, SaveSpace room);
    // Collective. Call before weights change: waits until the save has finished. A failed save
    // leaves earlier checkpoints unchanged, and sets fault() to the same text on all ranks. Errors:
    // the cluster's.
    Status Finish();
    const SaveCounts& counts() const { return counts_; }
    // On all ranks: the folder of the last complete checkpoint; "": none.
    const std::string& last() const { return last_; }
    // On all ranks: why the last save failed; "": it succeeded.
    const std::string& fault() const { return fault_; }

  private:
    SpacePlan PlanFor(SaveSpace room) const;
    Result<bool> AgreeOnSpace(const SpacePlan& plan);
    Status Commit(const std::vector<std::string>& texts);
    Status RemoveOld();
    void Note(const std::string& fault);

    const SaveOptions words_;
    cluster::Cluster& cluster_;
    const TrainState& state_;
    const UpdateRule& rule_;
    const model_files::ModelSource& source_;
    RankWriter writer_;
    std::optional<Result<CheckpointFile>> written_;  // set if updates waited for the save
    Manifest manifest_;                              // manifest of the running save
    int keep_ = 0;  // number of checkpoints to keep after the running save; 0: all
    bool under_way_ = false;
    Status begun_;
    SaveCounts counts_;
    std::string last_, fault_;
    SavePlace place_;
    SpacePlan room_;
    std::vector<std::string> Untouched() const;
    std::vector<std::string> bad_;
    std::string best_;
};

}  // namespace weft::train
