// The sizes and the Program of a reward model, for its ranks and for predictions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "backend/executable.h"
#include "base/result.h"
#include "model/hyper.h"
#include "model/shard.h"
#include "program/model_chunk.h"
#include "program/target.h"
#include "train/grpo/reward_models.h"

namespace weft::train {

// For a training with steps of `step_rows` rows: texts of twice its sequence, and at once as many
// rows as fast products need.
RewardModelOptions JudgeOptions(DType dtype, int64_t sequence, int64_t step_rows, std::string day);
// The Program of the shards of a rank. Errors: those of BuildScoringGraph.
Result<program::ChunkedProgram> BuildJudge(const model::Hyper& hyper,
                                           std::span<const model::Shard> shards,
                                           const model_files::ModelSource& source,
                                           const RewardModelOptions& options,
                                           const program::Target& target);
backend::CompileOptions CompileOptionsOfJudge(const model::Hyper& hyper,
                                              const RewardModelOptions& options,
                                              const program::Target& target);

}  // namespace weft::train
