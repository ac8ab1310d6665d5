// The facts of a cluster for a training prediction: the rates of its devices, and the links of
// groups of ranks.
#pragma once

#include <vector>

#include "coll/seconds.h"
#include "plan/machine.h"

namespace weft::plan {

struct DeviceRates {
    double products = 0, attention = 0;  // FLOP/s
    double memory = 0;                   // bytes/s
    double in_flight = 0;                // OutputsInFlight (plan/weft_rates.h)
    double op_s = 0;                     // seconds to start an op; 0 on a processor's own threads
    double room = 0;                     // bytes of memory
};
// Uses the shares of compute in the machine's file; if it has none, the shares of RatesOfKind
// (plan/weft_rates.h).
DeviceRates RatesOf(const Machine& machine);

class TrainLinks {
  public:
    // `cluster` must outlive this object.
    explicit TrainLinks(const ClusterSpec& cluster);

    int ranks() const { return ranks_; }
    const ClusterSpec& cluster() const { return *cluster_; }
    // Machines of the first `ranks` ranks, one of each kind.
    std::vector<const Machine*> KindsOf(int ranks) const;
    int HostOf(int rank) const { return PlaceOf(rank).host; }

    // The links among the `count` ranks first, first + stride, ... The other ranks form such
    // groups, too, and the groups share the link of each host.
    coll::TierGroup GroupOf(int first, int count, int stride) const;
    // The slowest group of `count` consecutive ranks.
    coll::TierGroup NeighboursOf(int count) const;
    // The link between two ranks; on different hosts, the rank's share of it while all ranks of its
    // host send.
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
    std::vector<int> firsts_;  // the first rank of each host
    std::vector<int> kinds_;   // the first host of each kind
};

}  // namespace weft::plan
