// Chooses the checkpoint from which a job resumes: the newest complete one. All ranks choose the
// same.
//
// Opening a checkpoint does not read its data, and a wrong byte in the data would end the job
// later. So before loading, the ranks divide the files of the newest checkpoint among them. Ranks
// read each file once, check each MiB against its CRC-32C, and exchange the results; the data is
// then in the page cache. All ranks skip a damaged checkpoint. When they find an older complete
// checkpoint, rank 0 renames this job's damaged ones ("step-00000600.bad"). If no checkpoint is
// complete, all keep their names, so each further attempt to resume fails with the same error.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "train/checkpoint/reader.h"
#include "train/saver.h"

namespace weft::train {

class ResumeSearch {
  public:
    // Both arguments must outlive this object.
    ResumeSearch(const SaveOptions& words, cluster::Cluster& cluster)
        : words_(words), cluster_(cluster) {}

    // Collective. last: on rank 0, the last checkpoint that this job wrote or resumed from; empty:
    // none, so --resume decides. Returns no checkpoint if the job starts from the beginning.
    // Errors: kNotFound (there is no checkpoint), kCorrupt (none is complete; the message has the
    // fault of the newest). If --resume names the folder of one step: those of Checkpoint::Open.
    Result<std::optional<Checkpoint>> Find(const std::string& last);
    // Rank 0: folders of damaged checkpoints that could not be renamed.
    const std::vector<std::string>& bad() const { return bad_; }

  private:
    Result<std::vector<std::string>> Candidates(const std::string& last);
    Result<std::string> FaultOf(const std::string& folder, std::optional<Checkpoint>& opened);
    void PutAside();
    void LogNoCheckpoint();

    const SaveOptions& words_;
    cluster::Cluster& cluster_;
    std::vector<std::string> bad_, faults_;
    std::vector<std::string> damaged_;  // rank 0: damaged checkpoints of this job
    bool warned_none_ = false;
};

// Checks the data of files `rank`, `rank` + `ranks`, ... Errors: kCorrupt, kIo; the message names
// the file.
Status CheckData(const Checkpoint& checkpoint, int rank, int ranks);

// The fault of a checkpoint, the same on all ranks.
struct Verdict {
    std::string fault;  // empty: intact
    bool damaged = false;
};
// Opens a checkpoint on all ranks and checks its data, each file on one rank. Collective. Sets
// `opened` if there is no fault. Errors: the cluster's.
Result<Verdict> OpenWhole(const std::string& folder, cluster::Cluster& cluster,
                          std::optional<Checkpoint>& opened);

}  // namespace weft::train
