// The data as a job reads them: the loaders of its two parts, and the walks before its first update
// that say how many updates there are and whether all of the test part can be read.
//
// Every rank walks the whole list (data/loader.h), so all of them find the same.
// Thread: the cluster's.
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

// Sequences of an update, over all ranks.
int64_t GlobalBatch(const TrainJob& job, const TrainLayout& layout);

// Of the training part, from its start.
Result<Loader> OpenLoader(const TrainJob& job, const TrainLayout& layout, const OpenedData& data);
// Of the test part, once, in the order of the file.
Result<Loader> OpenTestLoader(const TrainJob& job, const TrainLayout& layout,
                              const OpenedData& data);

class DataWalk {
  public:
    // Borrows all. is_time_up: whether the job has no time left.
    DataWalk(const TrainJob& job, cluster::Cluster& cluster, const TrainLayout& layout,
             const OpenedData& data, std::function<bool()> is_time_up)
        : job_(job),
          cluster_(cluster),
          layout_(layout),
          data_(data),
          is_time_up_(std::move(is_time_up)) {}

    // Updates of the whole job: --steps, or `done` and those that the epochs have left behind the
    // loader's cursor. On all ranks alike; they wait for the slowest one.
    // Errors: kUsage (not one update), kCancelled (a stop, the time), the loader's.
    Result<int64_t> CountUpdates(int64_t done, Loader loader);
    // What became of the samples up to the first end of an epoch; empty with --steps.
    const std::optional<LoaderCounts>& counts() const { return counts_; }

    // Reads all of the test part: what is wrong with a record is known before the first update.
    // Errors: kCancelled, the loader's.
    Result<LoaderCounts> CheckTestPart();

  private:
    // Batches of at least `least` sequences that are left. what: for the line of progress.
    Result<int64_t> Walk(Loader& loader, uint64_t least, std::string_view what, uint64_t records);

    const TrainJob& job_;
    cluster::Cluster& cluster_;
    const TrainLayout& layout_;
    const OpenedData& data_;
    const std::function<bool()> is_time_up_;
    std::optional<LoaderCounts> counts_;
};

// Logs what the data set has to tell, if anything (DataSet::TakeNote).
void TellNote(const DataSet& data);

// A line on samples that are left out or cut off, with what keeps them; empty: there are none.
std::string LeftOutText(const LoaderCounts& counts, const TrainJob& job, Part part);

}  // namespace weft::train
