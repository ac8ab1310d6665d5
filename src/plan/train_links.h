// A cluster as a training job uses it: the rates of its slowest device, and the links of groups of
// ranks.
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
    // The lowest of each figure over all devices.
    const DeviceRates& device() const { return device_; }
    int HostOf(int rank) const;

    // Link tiers of the `count` ranks first, first + stride, ..., while the other groups of the
    // same form share each host's link.
    coll::TierGroup GroupOf(int first, int count, int stride) const;
    // The slowest group of `count` consecutive ranks.
    coll::TierGroup NeighboursOf(int count) const;
    // One rank's share of the link to the other, while all ranks of a host send.
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
