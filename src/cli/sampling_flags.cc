#include "cli/sampling_flags.h"

#include <fmt/format.h>

namespace weft::cli {

Status SamplingFlags::Check() const {
    if (greedy && command.Given("--temp")) {
        return MakeError(ErrorCode::kUsage,
                         "--greedy sets --temp 0, which contradicts --temp {}: use one of them",
                         sampler.temperature);
    }
    return engine::CheckSampler(sampler);
}

model_files::SamplingHints SamplingFlags::Given() const {
    model_files::SamplingHints given;
    if (command.Given("--temp")) given.temperature = sampler.temperature;
    if (greedy) given.temperature = 0;
    if (command.Given("--top-k")) given.top_k = sampler.top_k;
    if (command.Given("--top-p")) given.top_p = sampler.top_p;
    if (command.Given("--min-p")) given.min_p = sampler.min_p;
    if (command.Given("--repeat-penalty")) given.repeat_penalty = sampler.repeat_penalty;
    return given;
}

void AddSamplingFlags(const Command& command, SamplingFlags& flags) {
    const char* group = "Sampling";
    engine::SamplerOptions& s = flags.sampler;
    flags.command = command;
    const auto add = [&](const char* flag, auto& value, const char* what, auto usual) {
        command
            .AddOption(
                flag, value,
                fmt::format("{} (default: the value in the model's file, else {})", what, usual))
            .Group(group);
    };
    add("--temp", s.temperature, "Sampling temperature; 0: always take the most likely token",
        s.temperature);
    command
        .AddFlag("--greedy", flags.greedy,
                 "Always take the most likely token, so that the answer is reproducible (--temp 0)")
        .Group(group);
    add("--top-k", s.top_k, "Sample from the K most likely tokens; 0: from all tokens", s.top_k);
    add("--top-p", s.top_p,
        "Sample from the smallest set of most likely tokens with this total probability; 1: from "
        "all tokens",
        s.top_p);
    add("--min-p", s.min_p,
        "Drop tokens below this share of the most likely token's probability; 0: none", s.min_p);
    add("--repeat-penalty", s.repeat_penalty, "Make recent tokens less likely; 1: off",
        s.repeat_penalty);
    command
        .AddOption("--generation-config", flags.generation_config,
                   "Defaults of the sampler: auto: from the model's file (generation_config.json, "
                   "general.sampling.*); none: Weft's (default: auto)")
        .OneOf({"auto", "none"})
        .Group(group);
}

}  // namespace weft::cli
