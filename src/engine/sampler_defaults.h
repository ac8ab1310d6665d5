// How tokens are chosen where a request does not say it: what the model's file hints at
// (model_files/sampling.h), what flags say, and how that is shown.
#pragma once

#include <string>

#include "engine/sampler.h"
#include "model_files/sampling.h"

namespace weft::engine {

// What the hints say takes the place of what `options` has.
void Apply(const model_files::SamplingHints& hints, SamplerOptions& options);

// "temp 0.7, top-k 20, top-p 0.8"; what changes nothing is left out. "greedy" at temperature 0.
std::string SamplingText(const SamplerOptions& options);

// What a model's file hints at, once its warnings are logged.
model_files::SamplingHints HintsOf(const model_files::ModelSource& source);

}  // namespace weft::engine
