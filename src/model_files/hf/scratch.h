// A Hugging Face folder without weights as a ModelSource: what pre-training begins from.
//
// Matrices are drawn from a normal distribution of mean 0 and config.json's `initializer_range`
// (0.02), norm weights are 1, biases 0, as transformers begins a model; projections into the
// residual stream are not scaled down by their number. All F32. Every value depends on (seed,
// tensor name, place) alone: any cut of a tensor, on any machine, has the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model_files::hf {

// True where `path` is a folder with a config.json and no safetensors files.
bool LacksWeights(const std::string& path);

// Weights that the folder may have are not looked at. Llama, Qwen 2 and Qwen 3.
// Errors: kNotFound (no config.json), kCorrupt, kUnsupported (another family), kUsage (the
// tokenizer has more tokens than the vocabulary of config.json).
Result<std::unique_ptr<ModelSource>> OpenScratch(const std::string& path, uint64_t seed);

}  // namespace weft::model_files::hf
