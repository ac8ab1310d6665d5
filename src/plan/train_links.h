// A cluster as a training job uses it: the rates of its slowest device, and the links of groups of
// ranks.
#pragma once

#include "coll/seconds.h"
#include "plan/machine.h"

namespace weft::plan {

struct DeviceRates {
    double products = 0, attention = 0;  // FLOP/s
    double memory = 0;                   // bytes/s
    double in_flight = 0;                // outputs of products computed at a time
    double op_s = 0;                     // seconds to start an op; 0 on a processor's own threads
    double room = 0;                     // bytes
};
// Uses the machine file's shares if it has them, else Weft's (plan/weft_rates.h).
DeviceRates RatesOf(const Machine& machine);

class TrainLinks {
  public:
    // Borrows the cluster.
    explicit TrainLinks(const ClusterSpec& cluster);

    int ranks() const { return ranks_; }
    const ClusterSpec& cluster() const { return *cluster_; }
    // The lowest of each figure over all devices.
    const DeviceRates& device() const { return device_; }
    int HostOf(int rank) const { return PlaceOf(rank).host; }

    // Link tiers of the `count` ranks first, first + stride, ..., while the other groups of the
    // same form share each host's link.
    coll::TierGroup GroupOf(int first, int count, int stride) const;
    // The slowest group of `count` consecutive ranks.
    coll::TierGroup NeighboursOf(int count) const;
    // One rank's share of the link to the other, while all ranks of a host send.
    coll::Tier Between(int rank, int other) const;

  private:
    Place PlaceOf(int rank) const;
    coll::Tier LinkOf(int rank, int other) const;
    int DevicesOf(int rank) const {
        return cluster_->hosts[static_cast<size_t>(HostOf(rank))].devices;
    }

    const ClusterSpec* cluster_;
    bool alike_;
    int ranks_;
    DeviceRates device_;
};

}  // namespace weft::plan
