// Sampling flags of the commands that generate text.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command_line/options.h"
#include "engine/sampling/sampler_defaults.h"

namespace weft::cli {

// Limits of an answer's tokens; -1: until the model or the context ends.
constexpr int64_t kLeastTokens = -1, kMostTokens = int64_t{1} << 30;

// Flags override the model's own file, which overrides engine::DefaultSampling().
struct SamplingFlags {
    engine::SamplerOptions sampler = engine::DefaultSampling();
    bool greedy = false;
    std::string generation_config = "auto";
    Command command;  // the command line

    bool from_model() const { return generation_config == "auto"; }
    // kUsage, naming the flag: a value out of range, or flags that exclude each other.
    Status Check() const;
    // The values set by flags.
    model_files::SamplingHints Given() const;
};

// --greedy, --generation-config, and a flag for each value of engine::VisitSampling.
void AddSamplingFlags(const Command& command, SamplingFlags& flags);

}  // namespace weft::cli
