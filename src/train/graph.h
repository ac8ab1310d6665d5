// The Program of one rank for training: the forward pass, the loss and the backward pass; and, to
// train on generated text, a forward pass with a KV cache that generates it.
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
#include "tensor/loss_terms.h"
#include "train/lora/lora.h"

namespace weft::train {

struct GraphOptions {
    // kBF16 or kF16: the type of matrices, of their gradients, and of values between norms and
    // matrix products; the residual stream, vectors and losses are float32. kF32: everything is
    // float32.
    DType dtype = DType::kF32;
    // Type in which the gradients of weights with type `dtype` are accumulated: `dtype` or kF32.
    DType gradients = DType::kF32;
    program::Recompute recompute = program::Recompute::kNone;
    program::ZeroOptions zero;
    // Trains adapters in float32 and freezes the model's weights; frozen weights keep their block
    // types in memory. Null: trains all weights, whatever type the file has.
    const LoraPlan* lora = nullptr;
    int64_t sequence = 0;  // most positions of a sequence; also selects the factors of LongRoPE
    // Most rows of a step, for ExpandLoss (program/loss.h). 0: linear_cross_entropy stays one op,
    // for callers that only count ops and do not run the Program.
    int64_t rows = 0;
    bool row_shares = false;                  // sequence parallelism (program/sequence_parallel.h)
    int context_rank = 0, context_ranks = 1;  // program/context_parallel.h
    bool load_balance = false;                // adds the auxiliary loss of experts as the side loss
    program::Target target{};                 // the device that runs it
    double temperature = 1;                   // logits are divided by it, in all chunks
    LossTerms loss{};                         // of the backward pass
    bool noise = false;  // noise is added to the embedding in training (Step::noise_keys)
    // Not 0: the maximum of rows of a step whose logits generate tokens.
    int64_t generated_rows = 0;
    DType kv_dtype = DType::kF16;
    bool reference = false;  // also adds the reference model
    // The loss is one of vectors (vector_loss.h): instead of logits, the Program has the vectors of
    // the output rows, in LossValues::evaluated.
    bool vectors = false;
};

struct TrainingGraph {
    // One chunk per shard. With generated_rows, these are followed by one generating chunk per
    // shard. It has forward and predict ops, reads the weights of the shard's training chunk in
    // place, and has a KV cache. With ZeRO 3 it reads copies of whole units instead, and has
    // backward ops that gather them. With `reference`, there is one more chunk per shard, with
    // forward and evaluate ops of the model before training. With adapters, it reads the model's
    // weights in place, and has a copy of the adapters if they come from a file
    // (LoraOptions::from), else none; without adapters, it has its own weights.
    program::ChunkedProgram program;
    std::vector<program::FlatBucket> units;  // units of the trained weights
};

// Builds the Program of a rank. The loss is the sum of the output rows'
// cross-entropies with "targets", or any function of their vectors.
// Errors: those of model::BuildProgram; kUnsupported: an op has no gradient; the message names it.
Result<TrainingGraph> BuildTrainingGraph(const model::Hyper& hyper,
                                         std::span<const model::Shard> shards,
                                         const model_files::ModelSource& source,
                                         const GraphOptions& options);

// The Program of a rank that computes the vectors of texts (GraphOptions::vectors) and trains
// nothing: one chunk per shard, with forward ops only. Weights keep their block types.
// Errors: those of model::BuildProgram.
Result<program::ChunkedProgram> BuildScoringGraph(const model::Hyper& hyper,
                                                  std::span<const model::Shard> shards,
                                                  const model_files::ModelSource& source,
                                                  const GraphOptions& options);

}  // namespace weft::train
