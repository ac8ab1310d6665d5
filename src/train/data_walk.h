// Opens the loaders of a job's training and test parts. Before the first update, DataWalk reads the
// data once, to count the updates and to check that the whole test part is readable.
//
// Every rank reads the whole list of sequences (data/loader.h), so all ranks get the same counts.
// Thread: the cluster's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "cluster/cluster.h"
#include "train/data/loader.h"
#include "train/parallel/layout.h"
#include "train/train_job.h"

namespace weft::train {

// Sequences per update, over all ranks.
int64_t GlobalBatch(const TrainJob& job, const TrainLayout& layout);

// Reads the training part from its start.
Result<Loader> OpenLoader(const TrainJob& job, const TrainLayout& layout, const OpenedData& data);
// Reads the test part once, in file order.
Result<Loader> OpenTestLoader(const TrainJob& job, const TrainLayout& layout,
                              const OpenedData& data);

class DataWalk {
  public:
    // All arguments must outlive this object. check_time: an error if the job's time limit has
    // passed; its argument describes the walk.
    DataWalk(const TrainJob& job, cluster::Cluster& cluster, const TrainLayout& layout,
             const OpenedData& data, std::function<Status(std::string_view)> check_time)
        : job_(job),
          cluster_(cluster),
          layout_(layout),
          data_(data),
          check_time_(std::move(check_time)) {}

    // Updates of the whole job: --steps, or `done` plus the updates that remain in the epochs after
    // the loader's cursor. Collective: all ranks get the same number.
    // Errors: kUsage (there is no update), kCancelled (a stop request), those of check_time and
    // Loader.
    Result<int64_t> CountUpdates(int64_t done, Loader loader);
    // Sample counts up to the end of the first epoch; empty with --steps.
    const std::optional<LoaderCounts>& counts() const { return counts_; }

    // Reads the whole test part, so that bad records are reported before the first update. Errors:
    // kCancelled, those of check_time and Loader.
    Result<LoaderCounts> CheckTestPart();

  private:
    // Counts the remaining batches of at least `least` sequences. what: the description of the walk
    // in the progress line. records: number of records.
    Result<int64_t> Walk(Loader& loader, uint64_t least, std::string_view what, uint64_t records);

    const TrainJob& job_;
    cluster::Cluster& cluster_;
    const TrainLayout& layout_;
    const OpenedData& data_;
    const std::function<Status(std::string_view)> check_time_;
    std::optional<LoaderCounts> counts_;
};

// Logs the data set's note, if it has one (DataSet::TakeNote).
void LogDataNote(const DataSet& data);

// A line about samples that are skipped or truncated, and the flag that keeps them; "" if there are
// none.
std::string LeftOutText(const LoaderCounts& counts, const TrainJob& job, Part part);

}  // namespace weft::train
