// Values for sampling options that a request does not set: Weft's defaults, or the defaults of the
// model's file (model_files/sampling.h). Also shows sampling options as text.
#pragma once

#include <cstdint>
#include <string>

#include "engine/sampling/sampler.h"
#include "model_files/sampling.h"

namespace weft::engine {

// Default of all commands and APIs; the same as in llama.cpp.
inline SamplerOptions DefaultSampling() {
    return {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
}

// A seed for a request without one.
uint64_t RandomSeed();

// Calls visit(name, value, hint) for each value of `options` that a flag sets, with the flag's name
// without dashes (llama.cpp's), and the member of `hints` for it.
template <typename Options, typename Hints, typename Visit>
void VisitSampling(Options& options, Hints& hints, const Visit& visit) {
    visit("temp", options.temperature, hints.temperature);
    visit("top-k", options.top_k, hints.top_k);
    visit("top-p", options.top_p, hints.top_p);
    visit("min-p", options.min_p, hints.min_p);
    visit("repeat-penalty", options.repeat_penalty, hints.repeat_penalty);
    visit("typical", options.typical_p, hints.typical_p);
    visit("top-nsigma", options.top_n_sigma, hints.top_n_sigma);
    visit("xtc-probability", options.xtc_probability, hints.xtc_probability);
    visit("xtc-threshold", options.xtc_threshold, hints.xtc_threshold);
    visit("dry-multiplier", options.dry.multiplier, hints.dry_multiplier);
    visit("dry-base", options.dry.base, hints.dry_base);
    visit("dry-allowed-length", options.dry.allowed, hints.dry_allowed);
}

// Replaces values in `options` by those that `hints` has.
void Apply(const model_files::SamplingHints& hints, SamplerOptions& options);

inline bool IsGreedy(const SamplerOptions& options) {
    return options.temperature <= 0 || options.top_k == 1;
}

// "temp 0.7, top-k 20, top-p 0.8", without values that have no effect; "greedy" at temperature 0.
std::string SamplingText(const SamplerOptions& options);
// ", typical 0.9": the part of it for the rules that are off by default; "": all are off.
std::string RareSamplingText(const SamplerOptions& options);

// Where the values come from: "by FILE", "by flags", "by FILE and flags", or "Weft's default".
std::string SamplingOrigin(const model_files::SamplingHints& hints,
                           const model_files::SamplingHints& flags);

// Reads the hints of a model's file and logs their warnings.
model_files::SamplingHints HintsOf(const model_files::ModelSource& source);

}  // namespace weft::engine
