// Which part of the model and of the data each rank has: tensor x data x pipeline parallelism.
//
// World rank = (stage * dp + replica) * tp + tensor rank: neighbours in rank are neighbours in the
// tensor group, which talks most (so it lies within a host where ranks are listed by host), then
// come the replicas of a stage, then stages, which talk least.
//
// Interleaved stages: each stage has several chunks of layers. Shards are planned as if every chunk
// were a stage of its own, one behind the other: chunk c of stage s is number c * pp + s.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/shard.h"
#include "train/parallel/pipeline.h"

namespace weft::train {

struct TrainLayout {
    model::Layout model;  // of one replica: its pp counts chunks
    int chunks = 1;       // of a stage
    int dp = 1;           // replicas
    int rank = 0, stage = 0, replica = 0, tensor_rank = 0;

    int tp() const { return model.tp; }
    int pp() const { return model.pp / chunks; }
    PipelinePlace place() const { return {stage, pp(), chunks}; }
    int RankOf(int of_stage, int of_replica, int of_tensor) const {
        return (of_stage * dp + of_replica) * tp() + of_tensor;
    }
    // Index of this rank's shard of `chunk` in model::PlanShards.
    int shard(int chunk) const { return (chunk * pp() + stage) * tp() + tensor_rank; }
    std::vector<int> TensorGroup() const;
    std::vector<int> DataGroup() const;
};

// tp, pp and dp as the user gave them, 0: for pp 1, for tp ep or 1, for dp all ranks that are left.
struct TrainLayoutOptions {
    int tp = 0, pp = 0, dp = 0;
    std::vector<double> split{};  // shares as model::MakeLayout takes them; a stage's of each chunk
    int ep = 0;                   // expert groups of the tensor ranks, as there
    int chunks = 1;               // of layers, that each stage has
};
// Errors: kUsage where they don't make `ranks` ranks, or chunks are asked for without stages.
Result<TrainLayout> MakeTrainLayout(int ranks, int rank, const TrainLayoutOptions& words);

}  // namespace weft::train
