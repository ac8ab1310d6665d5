#include "engine/sampler_defaults.h"

#include <fmt/format.h>

#include "base/log.h"

namespace weft::engine {

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
    const bool greedy = options.temperature <= 0 || options.top_k == 1;
    std::string text = greedy ? "greedy" : fmt::format("temp {}", options.temperature);
    const auto add = [&](const char* name, auto value, bool counts) {
        if (counts) text += fmt::format(", {} {}", name, value);
    };
    add("top-k", options.top_k, !greedy && options.top_k > 0);
    add("top-p", options.top_p, !greedy && options.top_p < 1);
    add("min-p", options.min_p, !greedy && options.min_p > 0);
    add("repeat-penalty", options.repeat_penalty, options.repeat_penalty != 1);
    return text;
}

model_files::SamplingHints HintsOf(const model_files::ModelSource& source) {
    model_files::SamplingHints hints = model_files::ReadSamplingHints(source);
    for (const std::string& warning : hints.warnings) Log(LogLevel::kWarning, "{}", warning);
    return hints;
}

}  // namespace weft::engine
