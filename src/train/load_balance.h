// The auxiliary loss of models with experts, which balances the load of experts (Shazeer et al.
// 2017; Fedus et al. 2021), as in transformers. It is computed over the rows of all layers of a
// micro-batch together: E * sum over the E experts of (share of the choices) * (mean probability).
// If all experts are chosen equally often, it equals the number of experts per token.
#pragma once

#include "base/result.h"
#include "model/hyper.h"
#include "model/shard.h"
#include "model_files/model_file.h"
#include "program/program.h"

namespace weft::train {

// Counts the router choices of this stage, adds them to the counts of earlier stages, and passes
// the sum to the next stage. Returns the loss, [1], on the last stage; kNoValue on others.
// Errors: kUsage if the model has no experts.
Result<program::ValueId> AddLoadBalance(program::Program& program, const model::Hyper& hyper,
                                        const model::Shard& shard,
                                        const model_files::ModelSource& source);

// The coefficient of the auxiliary loss: router_aux_loss_coef in the model's config.json if
// output_router_logits is set there; otherwise, and for models without a config.json, 0. Errors:
// those of reading the file.
Result<double> LoadBalanceOf(const model_files::ModelSource& source);

}  // namespace weft::train
