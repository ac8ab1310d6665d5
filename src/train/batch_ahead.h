// Reads each batch of a Loader while the previous one is in training, on a separate thread. The
// batches, and the state after each, are the same as the Loader's.
#pragma once

#include <optional>
#include <thread>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "train/data/loader.h"

namespace weft::train {

// The cores on which a rank reads data: `threads` of the rank's cores (0: all).
std::vector<int> ReadingCores(const cluster::Cluster& cluster, int threads);

// Thread: one caller at a time. Nothing else may use the Loader meanwhile, except Fingerprint.
class BatchAhead {
  public:
    // The loader must outlive this object.
    BatchAhead(Loader& loader, std::vector<int> cores);
    ~BatchAhead();  // waits for a read that has begun
    BatchAhead(const BatchAhead&) = delete;
    BatchAhead& operator=(const BatchAhead&) = delete;

    // As Loader::Next. reads_on: begins to read the batch after this one.
    Result<std::optional<Batch>> Next(bool reads_on);

    // The Loader's state after the last batch that Next returned.
    const Cursor& cursor() const { return cursor_; }
    const LoaderCounts& counts() const { return counts_; }
    const std::optional<LoaderCounts>& first_epoch() const { return first_epoch_; }

  private:
    Loader& loader_;
    const std::vector<int> cores_;
    std::thread thread_;
    Result<std::optional<Batch>> read_ = std::optional<Batch>();
    Cursor cursor_;
    LoaderCounts counts_;
    std::optional<LoaderCounts> first_epoch_;
};

}  // namespace weft::train
