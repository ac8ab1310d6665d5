#include "cli/sampling_flags.h"

#include <fmt/format.h>

namespace weft::cli {

model_files::SamplingHints SamplingFlags::Given() const {
    model_files::SamplingHints given;
    if (command.Given("--temp")) given.temperature = sampler.temperature;
    if (command.Given("--top-k")) given.top_k = sampler.top_k;
    if (command.Given("--top-p")) given.top_p = sampler.top_p;
    if (command.Given("--min-p")) given.min_p = sampler.min_p;
    if (command.Given("--repeat-penalty")) given.repeat_penalty = sampler.repeat_penalty;
    return given;
}

void AddSamplingFlags(const Command& command, SamplingFlags& flags,
                      const std::string& temperature) {
    const char* group = "Sampling";
    engine::SamplerOptions& s = flags.sampler;
    flags.command = command;
    command
        .AddOption("--temp", s.temperature,
                   fmt::format("Temperature; 0: greedy. Default: what the model's own file says, "
                               "else {}",
                               temperature))
        .Group(group);
    command
        .AddOption("--top-k", s.top_k,
                   "Only the K best tokens; 0: all. Default: the model's file, else 0")
        .Group(group);
    command
        .AddOption("--top-p", s.top_p,
                   "The best tokens of this probability. Default: the model's file, else 1 (all)")
        .Group(group);
    command
        .AddOption("--min-p", s.min_p,
                   "At least this share of the best token's probability. Default: the model's "
                   "file, else 0 (all)")
        .Group(group);
    command
        .AddOption("--repeat-penalty", s.repeat_penalty,
                   "Makes recent tokens less likely. Default: the model's file, else 1 (off)")
        .Group(group);
    command
        .AddOption("--generation-config", flags.generation_config,
                   "auto (default): heed the sampling that the model's file asks for "
                   "(generation_config.json, general.sampling.*); none: don't")
        .OneOf({"auto", "none"})
        .Group(group);
}

}  // namespace weft::cli
