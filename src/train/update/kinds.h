// The kinds of UpdateRule (rule.h) and helpers that they share.
#pragma once

#include "train/update/rule.h"

namespace weft::train {

// Adds a vector of optimizer state, initially zero, which exists as long as the model.
program::ValueId AddKept(program::Program& program, std::string name, DType dtype,
                         int64_t elements);
// Adds an update op. Inputs: gradients, weights, kept..., and copy if there is one. Outputs:
// weights, kept..., and copy.
void AddUpdateOp(program::Program& program, program::OpAttributes attributes, const OwnPart& part,
                 const std::vector<program::ValueId>& kept);
// Adam's options as attributes of the op. Weight decay applies only to matrices.
program::AdamUpdate AdamOf(const UpdateOptions& options);
inline constexpr const char* kAdamKinds[] = {"adam_m", "adam_v"};
// For each of `tensors`, one array of each kind, with the tensor's shape.
std::vector<Array> ArraysOf(const UpdateContext& context, std::span<const char* const> kinds,
                            const std::set<std::string, std::less<>>& tensors);

std::unique_ptr<UpdateRule> MakeElementRule(const UpdateOptions& options,
                                            const UpdateContext& context);
std::unique_ptr<UpdateRule> MakeAdafactor(const UpdateOptions& options,
                                          const UpdateContext& context);
std::unique_ptr<UpdateRule> MakeAdam8bit(const UpdateOptions& options,
                                         const UpdateContext& context);

std::unique_ptr<UpdateRule> MakeMuon(const UpdateOptions& options, const UpdateContext& context);

// The rule with an average of the weights, if the options request one.
std::unique_ptr<UpdateRule> WithAverage(std::unique_ptr<UpdateRule> rule,
                                        const UpdateOptions& options, const UpdateContext& context);

}  // namespace weft::train
