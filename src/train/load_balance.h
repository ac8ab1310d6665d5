// The auxiliary loss of models with experts, which asks for rows to be shared out evenly (Shazeer
// et al. 2017; Fedus et al. 2021), as transformers computes it: over the rows of all layers of a
// micro-batch together, E * sum over experts of (share of the choices) * (mean probability); the
// number of experts of a token where all are chosen alike.
#pragma once

#include "base/result.h"
#include "model/hyper.h"
#include "model/shard.h"
#include "model_files/model_file.h"
#include "program/program.h"

namespace weft::train {

// Counts what the routers of this stage choose, on what earlier stages have counted, and hands that
// on. Returns the loss, [1], on the last stage; kNoValue on others.
// Errors: kUsage where the model has no experts.
Result<program::ValueId> AddLoadBalance(program::Program& program, const model::Hyper& hyper,
                                        const model::Shard& shard,
                                        const model_files::ModelSource& source);

// What the model's config.json asks for: router_aux_loss_coef where output_router_logits is set;
// else, and for models from other files, 0. Errors: those of reading the file.
Result<double> LoadBalanceOf(const model_files::ModelSource& source);

}  // namespace weft::train
