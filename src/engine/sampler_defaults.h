// How tokens are sampled where a request does not say it: Weft's defaults, the values in the
// model's file (model_files/sampling.h), and how that is shown.
#pragma once

#include <cstdint>
#include <string>

#include "engine/sampler.h"
#include "model_files/sampling.h"

namespace weft::engine {

// The one default of all commands and APIs: llama.cpp's.
inline SamplerOptions DefaultSampling() {
    return {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
}

// A seed for a request that gives none.
uint64_t RandomSeed();

// A value that the hints have replaces the one in `options`.
void Apply(const model_files::SamplingHints& hints, SamplerOptions& options);

inline bool IsGreedy(const SamplerOptions& options) {
    return options.temperature <= 0 || options.top_k == 1;
}

// "temp 0.7, top-k 20, top-p 0.8"; values that change nothing are left out. "greedy" at
// temperature 0.
std::string SamplingText(const SamplerOptions& options);

// Where the values come from: "by FILE", "by flags", "by FILE and flags", or "Weft's default".
std::string SamplingOrigin(const model_files::SamplingHints& hints,
                           const model_files::SamplingHints& flags);

// The hints in a model's file. Logs their warnings.
model_files::SamplingHints HintsOf(const model_files::ModelSource& source);

}  // namespace weft::engine
