#include "engine/sampling/sampler_defaults.h"

#include <fmt/format.h>

#include <random>

#include "base/log.h"

namespace weft::engine {

uint64_t RandomSeed() {
    thread_local std::mt19937_64 random{std::random_device{}()};
    return random();
}

void Apply(const model_files::SamplingHints& hints, SamplerOptions& options) {
    const auto take = [](const char*, auto& value, const auto& hint) {
        if (hint) value = static_cast<std::remove_reference_t<decltype(value)>>(*hint);
    };
    VisitSampling(options, hints, take);
    take("", options.repeat_last, hints.repeat_last);
}

std::string SamplingText(const SamplerOptions& options) {
    const bool greedy = IsGreedy(options);
    std::string text = greedy ? "greedy" : fmt::format("temp {}", options.temperature);
    const auto add = [&](const char* name, auto value, bool counts) {
        if (counts) text += fmt::format(", {} {}", name, value);
    };
    add("top-k", options.top_k, !greedy && options.top_k > 0);
    add("top-p", options.top_p, !greedy && options.top_p < 1);
    add("min-p", options.min_p, !greedy && options.min_p > 0);
    add("repeat-penalty", options.repeat_penalty, options.repeat_penalty != 1);
    add("presence-penalty", options.presence_penalty, options.presence_penalty != 0);
    add("frequency-penalty", options.frequency_penalty, options.frequency_penalty != 0);
    return text + RareSamplingText(options);
}

std::string RareSamplingText(const SamplerOptions& options) {
    std::string text;
    const auto add = [&](const char* name, auto value, bool counts) {
        if (counts) text += fmt::format(", {} {}", name, value);
    };
    add("typical", options.typical_p, options.typical_p < 1);
    add("top-nsigma", options.top_n_sigma, options.top_n_sigma > 0);
    add("xtc-probability", options.xtc_probability, options.xtc());
    add("xtc-threshold", options.xtc_threshold, options.xtc());
    add("dry-multiplier", options.dry.multiplier, options.dry.on());
    add("dry-base", options.dry.base, options.dry.on());
    add("dry-allowed-length", options.dry.allowed, options.dry.on());
    return text;
}

std::string SamplingOrigin(const model_files::SamplingHints& hints,
                           const model_files::SamplingHints& flags) {
    if (!hints.any()) return flags.any() ? "by flags" : "Weft's default";
    return fmt::format("by {}{}", hints.file, flags.any() ? " and flags" : "");
}

model_files::SamplingHints HintsOf(const model_files::ModelSource& source) {
    model_files::SamplingHints hints = model_files::ReadSamplingHints(source);
    for (const std::string& warning : hints.warnings) Log(LogLevel::kWarning, "{}", warning);
    return hints;
}

}  // namespace weft::engine
