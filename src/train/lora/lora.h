// LoRA in training: the model's weights stay as they are, and A and B beside them (plan.h) are
// trained.
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
    std::vector<program::ValueId> sums;     // y, what an addition of x . W^T and the adapter writes
};

// Puts the adapters of this rank's part of the matrices into a forward Program without biases in
// its products. Where W is cut by rows, so is B, and A is whole; where it is cut by columns, so is
// A, whose partial products are summed over the tensor group, and B is whole. Products of different
// rows of one tensor (Phi-3's qkv_proj) share A, as in PEFT.
// Errors: kUnsupported, naming the matrix: one that products with different inputs read, or whose
// sum over ranks other products go into.
Result<Adapters> AddAdapters(program::Program& program, const LoraPlan& plan);

// A stage trains what it passes gradients back from: each of the shards has a target in its layers.
// Errors: kUnsupported, naming the layers.
Status CheckStages(const LoraPlan& plan, std::span<const model::Shard> shards,
                   const std::string& model);

}  // namespace weft::train
