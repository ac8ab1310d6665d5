// The Program of one rank for training: a model's forward pass, its loss, and the way back.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "model/shard.h"
#include "model_files/model_file.h"
#include "program/model_chunk.h"
#include "program/recompute.h"
#include "program/target.h"
#include "program/zero.h"
#include "train/lora/lora.h"

namespace weft::train {

struct GraphOptions {
    // kBF16 or kF16: of matrices, their gradients and what lies between norms and matrix products;
    // the residual stream, vectors and losses are float32. kF32: of everything.
    DType dtype = DType::kF32;
    // What gradients of weights that are narrow are added up in: `dtype`, or kF32.
    DType gradients = DType::kF32;
    program::Recompute recompute = program::Recompute::kNone;
    program::ZeroOptions zero;
    // Adapters are trained, in float32, and the model's own weights are not: those of block types
    // stay so in memory. Null: all weights are trained, whatever type the file has.
    const LoraPlan* lora = nullptr;
    int64_t sequence = 0;  // most positions of a sequence
    // Most rows of a step, for ExpandLoss (program/loss.h). 0: linear_cross_entropy stays one op,
    // for who only counts.
    int64_t rows = 0;
    bool row_shares = false;    // sequence parallelism (program/sequence_parallel.h)
    bool load_balance = false;  // with the auxiliary loss of experts as the side loss
    program::Target target{};   // of the device that runs it
};

struct TrainingGraph {
    program::ChunkedProgram program;   // a chunk for each shard
    std::vector<program::FlatBucket> units;  // of what is trained
};

// Of a rank's shards: one, or several chunks of layers. The loss is the sum over output rows of the
// cross-entropy with "targets".
// Errors: those of model::BuildProgram; kUnsupported, naming the op that has no gradient.
Result<TrainingGraph> BuildTrainingGraph(const model::Hyper& hyper,
                                         std::span<const model::Shard> shards,
                                         const model_files::ModelSource& source,
                                         const GraphOptions& options);

}  // namespace weft::train
