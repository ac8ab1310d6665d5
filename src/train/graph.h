// The Program of one rank for training: a model's forward pass, its loss, and the way back.
#pragma once

#include "backend/cpu/training.h"
#include "base/result.h"
#include "formats/model_file.h"
#include "model/shard.h"

namespace weft::train {

// Weights are float32 whatever the file has; all of float type or of a type that only stores less
// are trained. The loss is the sum over output rows of the cross-entropy with "targets".
// Errors: those of model::BuildProgram; kUnsupported, naming the op that has no gradient.
Result<backend::TrainingProgram> BuildTrainingProgram(const model::Hyper& hyper,
                                                      const model::Shard& shard,
                                                      const formats::ModelSource& source);

}  // namespace weft::train
