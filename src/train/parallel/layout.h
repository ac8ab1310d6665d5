// Which part of the model and of the data each rank has: tensor x data x pipeline parallelism.
//
// World rank = (stage * dp + replica) * tp + tensor rank: neighbours in rank are neighbours in the
// tensor group, which talks most (so it lies within a host where ranks are listed by host), then
// come the replicas of a stage, then stages, which talk least.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/shard.h"

namespace weft::train {

struct TrainLayout {
    model::Layout model;  // of one replica
    int dp = 1;           // replicas
    int rank = 0, stage = 0, replica = 0, tensor_rank = 0;

    int tp() const { return model.tp; }
    int pp() const { return model.pp; }
    int RankOf(int of_stage, int of_replica, int of_tensor) const {
        return (of_stage * dp + of_replica) * tp() + of_tensor;
    }
    // Index of this rank's shard in model::PlanShards, and the rank of this replica that has one.
    int shard() const { return stage * tp() + tensor_rank; }
    int RankOfShard(int shard) const { return RankOf(shard / tp(), replica, shard % tp()); }
    std::vector<int> TensorGroup() const;
    std::vector<int> DataGroup() const;
};

// tp, pp and dp as the user gave them, 0: for pp 1, for tp ep or 1, for dp all ranks that are left.
// split: shares as model::MakeLayout takes them; ep: expert groups of the tensor ranks, as there.
// Errors: kUsage where they don't make `ranks` ranks.
Result<TrainLayout> MakeTrainLayout(int ranks, int rank, int tp, int pp, int dp,
                                    const std::vector<double>& split, int ep = 0);

}  // namespace weft::train
