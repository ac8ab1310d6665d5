// Values for sampling options that a request does not set: Weft's defaults, or those of the model's
// file (model_files/sampling.h). Also shows sampling options as text.
#pragma once

#include <cstdint>
#include <string>

#include "engine/sampler.h"
#include "model_files/sampling.h"

namespace weft::engine {

// Default of all commands and APIs; the same as in llama.cpp.
inline SamplerOptions DefaultSampling() {
    return {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
}

// A seed for a request without one.
uint64_t RandomSeed();

// Replaces values in `options` by those that `hints` has.
void Apply(const model_files::SamplingHints& hints, SamplerOptions& options);

inline bool IsGreedy(const SamplerOptions& options) {
    return options.temperature <= 0 || options.top_k == 1;
}

// "temp 0.7, top-k 20, top-p 0.8", without values that have no effect; "greedy" at temperature 0.
std::string SamplingText(const SamplerOptions& options);

// Where the values come from: "by FILE", "by flags", "by FILE and flags", or "Weft's default".
std::string SamplingOrigin(const model_files::SamplingHints& hints,
                           const model_files::SamplingHints& flags);

// Reads the hints of a model's file and logs their warnings.
model_files::SamplingHints HintsOf(const model_files::ModelSource& source);

}  // namespace weft::engine
