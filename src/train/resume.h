// Which checkpoint a job goes on from: the newest one that is whole, the same on all ranks.
//
// Opening a checkpoint does not read its data, and a wrong byte in them would end the job wherever
// a rank reads it. So ranks share out the files of the newest one, read them once (each MiB against
// its CRC-32C) and tell each other what they found, before anything is loaded from it; what was
// read is in the page cache then. A damaged one is passed over by all. Once an older one is found
// that is whole, those that are this job's own are renamed: "step-00000600.bad". Where none is
// whole all stay as they are: each run that is asked to go on then ends with the same error.
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
    // Both outlive it.
    ResumeSearch(const SaveOptions& words, cluster::Cluster& cluster)
        : words_(words), cluster_(cluster) {}

    // On all ranks alike. last: rank 0's, the last checkpoint that this job has written or gone on
    // from; empty: none, what --resume says counts. Nothing: from the start. Errors: kNotFound
    // (none is there), kCorrupt (none of those that are there is whole), naming what is wrong with
    // each; for the folder of one step the errors of Checkpoint::Open.
    Result<std::optional<Checkpoint>> Find(const std::string& last);
    // Rank 0: folders that are not whole and could not be renamed.
    const std::vector<std::string>& bad() const { return bad_; }

  private:
    Result<std::vector<std::string>> Candidates(const std::string& last);
    Result<std::string> FaultOf(const std::string& folder, std::optional<Checkpoint>& opened);
    void PutAside();
    void TellNone();

    const SaveOptions& words_;
    cluster::Cluster& cluster_;
    std::vector<std::string> bad_, faults_;
    std::vector<std::string> damaged_;  // rank 0: own ones
    bool told_none_ = false;
};

// Reads the data of files `rank`, `rank` + `ranks`, ... Errors: kCorrupt, kIo, naming the file.
Status CheckData(const Checkpoint& checkpoint, int rank, int ranks);

}  // namespace weft::train
