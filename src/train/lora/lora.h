// LoRA in training: the model's weights are frozen, and the matrices A and B (plan.h) are trained.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/shard.h"
#include "model_files/lora/plan.h"
#include "program/program.h"

namespace weft::train {

using model_files::kAdapterPrefix;
using model_files::LoraOptions;
using model_files::LoraPlan;
using model_files::LoraTarget;
using model_files::PlanLora;

struct Adapters {
    std::vector<program::ValueId> weights;  // A and B, float32
    std::vector<program::ValueId> sums;     // for each adapter: y, the sum of x . W^T and the
                                            // adapter's output
};

// Adds the adapters of this rank's shards to a forward Program whose matrix products have no
// biases. If a weight W is sharded by rows, B is sharded in the same way, and A is replicated. If W
// is sharded by columns, A is sharded in the same way, A's partial products are summed over the
// tensor group, and B is replicated. Products with different rows of one tensor (Phi-3's qkv_proj)
// share A, as in PEFT.
// Errors: kUnsupported, with the matrix in the message: products with different inputs read the
// matrix, or the sum over ranks also has other products.
Result<Adapters> AddAdapters(program::Program& program, const LoraPlan& plan);

// Checks that each shard has an adapter in its layers, because a stage without trained weights
// would not pass gradients back. Errors: kUnsupported, with the layers in the message.
Status CheckStages(const LoraPlan& plan, std::span<const model::Shard> shards,
                   const std::string& model);

}  // namespace weft::train
