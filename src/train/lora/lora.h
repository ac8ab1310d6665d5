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
    std::vector<program::ValueId> sums;  // y, the output of the addition of x . W^T and the adapter
};

// Adds the adapters of this rank's shards to a forward Program without biases in its products. If W
// is sharded by rows, B is too, and A is replicated. If W is sharded by columns, A is too, its
// partial products are summed over the tensor group, and B is replicated. Products of different
// rows of one tensor (Phi-3's qkv_proj) share A, as in PEFT.
// Errors: kUnsupported, naming the matrix: products with different inputs read it, or other
// products add to its sum over ranks.
Result<Adapters> AddAdapters(program::Program& program, const LoraPlan& plan);

// Checks that each shard has a target in its layers, because a stage must train something to pass
// gradients back. Errors: kUnsupported, naming the layers.
Status CheckStages(const LoraPlan& plan, std::span<const model::Shard> shards,
                   const std::string& model);

}  // namespace weft::train
