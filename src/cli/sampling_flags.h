// The flags that say how tokens are chosen, of the commands that choose any.
#pragma once

#include <cstdint>
#include <string>

#include "cli/options.h"
#include "engine/sampler_defaults.h"

namespace weft::cli {

// Of the tokens of an answer; -1: until the model or the context ends.
constexpr int64_t kLeastTokens = -1, kMostTokens = int64_t{1} << 30;

// Without a flag the model's own file decides, then Weft: greedy in a terminal.
struct SamplingFlags {
    engine::SamplerOptions sampler;
    std::string generation_config = "auto";
    Command command;  // the command line

    bool from_model() const { return generation_config == "auto"; }
    // What flags say.
    model_files::SamplingHints Given() const;
};

// --temp, --top-k, --top-p, --min-p, --repeat-penalty, --generation-config.
// temperature: in words, what it is without hints.
void AddSamplingFlags(const Command& command, SamplingFlags& flags, const std::string& temperature);

}  // namespace weft::cli
