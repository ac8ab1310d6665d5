#include "engine/sampler_defaults.h"

#include <fmt/format.h>

#include <random>

#include "base/log.h"

namespace weft::engine {

uint64_t RandomSeed() {
    thread_local std::mt19937_64 random{std::random_device{}()};
    return random();
}

void Apply(const model_files::SamplingHints& hints, SamplerOptions& options) {
    const auto take = [](const auto& hint, auto& value) {
        if (hint) value = static_cast<std::remove_reference_t<decltype(value)>>(*hint);
    };
    take(hints.temperature, options.temperature);
    take(hints.top_k, options.top_k);
    take(hints.top_p, options.top_p);
    take(hints.min_p, options.min_p);
    take(hints.repeat_penalty, options.repeat_penalty);
    take(hints.repeat_last, options.repeat_last);
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
