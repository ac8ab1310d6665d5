// A cluster as a training job sees it: what its slowest device does, and the links of groups of
// ranks that lie side by side on hosts.
#pragma once

#include "coll/seconds.h"
#include "plan/machine.h"
#include "plan/train_time.h"

namespace weft::plan {

class TrainLinks {
  public:
    explicit TrainLinks(const ClusterSpec& cluster);

    int ranks() const { return ranks_; }
    int hosts() const { return static_cast<int>(cluster_->hosts.size()); }
    const ClusterSpec& cluster() const { return *cluster_; }
    // Of the slowest device, figure by figure.
    const DeviceRates& device() const { return device_; }
    int HostOf(int rank) const;

    // Ranks first, first + stride, ... (count of them), beside which other groups of the same form
    // share each host's link.
    coll::TierGroup GroupOf(int first, int count, int stride) const;
    // The slowest of the groups of `count` neighbours.
    coll::TierGroup NeighboursOf(int count) const;
    // One rank's part of what joins it to another, when all ranks of a host send.
    coll::Tier Between(int rank, int other) const;

  private:
    Place PlaceOf(int rank) const;
    coll::Tier Joins(int rank, int other) const;

    const ClusterSpec* cluster_;
    bool alike_ = true;
    int ranks_ = 0;
    DeviceRates device_;
};

}  // namespace weft::plan
