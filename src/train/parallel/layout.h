// Says which part of the model and of the data each rank has, under tensor, data and pipeline
// parallelism together.
//
// World rank = (stage * dp + replica) * tp + tensor rank. Adjacent ranks form a tensor group, which
// communicates most (and is within a host if ranks are listed by host). The replicas of a stage
// follow each other. Stages, which communicate least, are farthest apart.
//
// Context parallelism: `cp` adjacent replicas are a context group. They have the same data, of
// which each computes a part of the rows (program/context_parallel.h); in all else they are
// replicas.
//
// Interleaved stages: each stage has several model chunks. Shards are planned as if every chunk
// were a stage: chunk c of stage s is number c * pp + s.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/shard.h"
#include "train/parallel/pipeline.h"

namespace weft::train {

struct TrainLayout {
    model::Layout model;  // layout of one replica; its pp is the number of chunks
    int chunks = 1;       // per stage
    int dp = 1;           // replicas
    int cp = 1;           // replicas with the same data; divides dp
    int rank = 0, stage = 0, replica = 0, tensor_rank = 0;

    int tp() const { return model.tp; }
    int pp() const { return model.pp / chunks; }
    // Replicas with different data, and the number of this rank's among them.
    int streams() const { return dp / cp; }
    int stream() const { return replica / cp; }
    int context_rank() const { return replica % cp; }
    PipelinePlace place() const { return {stage, pp(), chunks}; }
    int RankOf(int of_stage, int of_replica, int of_tensor) const {
        return (of_stage * dp + of_replica) * tp() + of_tensor;
    }
    // Index of this rank's shard of `chunk` in model::PlanShards.
    int shard(int chunk) const { return (chunk * pp() + stage) * tp() + tensor_rank; }
    std::vector<int> TensorGroup() const;
    std::vector<int> DataGroup() const;
    std::vector<int> ContextGroup() const;
};

// tp, pp, dp and cp from the user; 0: not given. The defaults: pp and cp are 1, tp is ep (at least
// 1), and dp, here the number of replicas with different data, uses all remaining ranks.
struct TrainLayoutOptions {
    int tp = 0, pp = 0, dp = 0;
    // Shares, as in model::MakeLayout. A stage's share applies to each of its chunks.
    std::vector<double> split{};
    int ep = 0;      // expert groups of the tensor ranks, as in model::Layout
    int chunks = 1;  // model chunks per stage
    int cp = 0;
};
// Errors: kUsage if tp * pp * dp * cp is not `ranks`, or if there are several chunks but only one
// stage.
Result<TrainLayout> MakeTrainLayout(int ranks, int rank, const TrainLayoutOptions& words);

}  // namespace weft::train
