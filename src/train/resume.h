// Chooses the checkpoint to resume from: the newest complete one, the same on all ranks.
//
// Opening a checkpoint does not read its data, and a wrong byte in the data would end the job
// later. So before loading, the ranks divide the files of the newest checkpoint, read each once
// (each MiB against its CRC-32C) and exchange the results; the data is then in the page cache. All
// ranks skip a damaged checkpoint. Once they find an older complete checkpoint, they rename this
// job's damaged ones: "step-00000600.bad". If no checkpoint is complete, all keep their names, and
// each further resume fails with the same error.
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
    // Both arguments outlive it.
    ResumeSearch(const SaveOptions& words, cluster::Cluster& cluster)
        : words_(words), cluster_(cluster) {}

    // Collective. last: on rank 0, the last checkpoint that this job wrote or resumed from; empty:
    // none, --resume decides. Returns no checkpoint if the job starts from the beginning. Errors:
    // kNotFound (there is none), kCorrupt (none is complete), naming the fault of each; for the
    // folder of one step, those of Checkpoint::Open.
    Result<std::optional<Checkpoint>> Find(const std::string& last);
    // Rank 0: incomplete folders that could not be renamed.
    const std::vector<std::string>& bad() const { return bad_; }

  private:
    Result<std::vector<std::string>> Candidates(const std::string& last);
    Result<std::string> FaultOf(const std::string& folder, std::optional<Checkpoint>& opened);
    void PutAside();
    void TellNone();

    const SaveOptions& words_;
    cluster::Cluster& cluster_;
    std::vector<std::string> bad_, faults_;
    std::vector<std::string> damaged_;  // rank 0: of this job
    bool told_none_ = false;
};

// Checks the data of files `rank`, `rank` + `ranks`, ... Errors: kCorrupt, kIo, naming the file.
Status CheckData(const Checkpoint& checkpoint, int rank, int ranks);

}  // namespace weft::train
