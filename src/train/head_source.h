// The initial model of a training with a loss over vectors (vector_loss.h): a model with a score
// head, or with a pooling.
#pragma once

#include <memory>
#include <vector>

#include "model_files/source_over.h"
#include "train/vector_loss.h"

namespace weft::train {

// A model that lacks a score head gets one, "cls.output.weight" [labels, hidden] (score_head.h),
// with random values of config.json's initializer_range, as in transformers; they depend only on
// the seed. With `contrastive`, the metadata state the pooling. Returns `source` itself if the loss
// is of another kind, or if `source` already has the head and the metadata.
// Errors: kUsage (the model's head has another number of labels); kUnsupported (an encoder's head,
// a pooling that is not trained).
Result<std::unique_ptr<model_files::ModelSource>> WithHead(
    std::unique_ptr<model_files::ModelSource> source, const VectorOptions& options, uint64_t seed);

// The number of labels of a model's score head; 0: it has none.
int64_t LabelsOf(const model_files::ModelSource& source);

}  // namespace weft::train
