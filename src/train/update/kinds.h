// The kinds of UpdateRule and their common helpers: part of rule.h.
#pragma once

#include "train/update/rule.h"

namespace weft::train {

// A vector that lives as long as the model, initially zero.
program::ValueId AddKept(program::Program& program, std::string name, DType dtype,
                         int64_t elements);
// gradients, weights, kept..., (copy) -> weights, kept..., (copy).
void AddUpdateOp(program::Program& program, program::OpAttributes attributes, const OwnPart& part,
                 const std::vector<program::ValueId>& kept);
// Adam's numbers; weight decay applies to matrices.
program::AdamUpdate AdamOf(const UpdateOptions& options);
inline constexpr const char* kAdamKinds[] = {"adam_m", "adam_v"};
// Arrays of these kinds, with the shape of each tensor.
std::vector<Array> ArraysOf(const UpdateContext& context, std::span<const char* const> kinds,
                            const std::set<std::string, std::less<>>& tensors);

std::unique_ptr<UpdateRule> MakeElementRule(const UpdateOptions& options,
                                            const UpdateContext& context);
std::unique_ptr<UpdateRule> MakeAdafactor(const UpdateOptions& options,
                                          const UpdateContext& context);
std::unique_ptr<UpdateRule> MakeAdam8bit(const UpdateOptions& options,
                                         const UpdateContext& context);

}  // namespace weft::train
