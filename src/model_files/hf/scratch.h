// A Hugging Face folder without weights as a ModelSource with random initial weights, for
// pre-training.
//
// Matrices are drawn from a normal distribution with mean 0 and the standard deviation
// `initializer_range` of config.json (default 0.02), norm weights are 1, biases 0, as in
// transformers; projections into the residual stream are not scaled by depth. All are F32. Every
// value depends only on (seed, tensor name, position), so any slice of a tensor has the same bits
// on any machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model_files::hf {

// Whether `path` is a folder with a config.json and no weights (safetensors.h).
bool LacksWeights(const std::string& path);

// Ignores any weights in the folder. Supports Llama, Qwen 2 and Qwen 3.
// Errors: kNotFound (no config.json), kCorrupt, kUnsupported (another family), kUsage (the
// tokenizer has more tokens than the vocabulary of config.json).
Result<std::unique_ptr<ModelSource>> OpenScratch(const std::string& path, uint64_t seed);

}  // namespace weft::model_files::hf
