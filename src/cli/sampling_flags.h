// The flags that set how tokens are sampled, for the commands that generate text.
#pragma once

#include <cstdint>
#include <string>

#include "cli/options.h"
#include "engine/sampler_defaults.h"

namespace weft::cli {

// Of the tokens of an answer; -1: until the model or the context ends.
constexpr int64_t kLeastTokens = -1, kMostTokens = int64_t{1} << 30;

// A flag overrides the model's own file, and the file overrides engine::DefaultSampling().
struct SamplingFlags {
    engine::SamplerOptions sampler = engine::DefaultSampling();
    bool greedy = false;
    std::string generation_config = "auto";
    Command command;  // the command line

    bool from_model() const { return generation_config == "auto"; }
    // kUsage, naming the flag, for a value out of range or flags that exclude each other.
    Status Check() const;
    // The values that flags set.
    model_files::SamplingHints Given() const;
};

// --temp, --greedy, --top-k, --top-p, --min-p, --repeat-penalty, --generation-config.
void AddSamplingFlags(const Command& command, SamplingFlags& flags);

}  // namespace weft::cli
