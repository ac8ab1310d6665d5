#include "cli/command_line/sampling_flags.h"

#include <fmt/format.h>

#include <array>

namespace weft::cli {
namespace {

struct SamplingHelp {
    const char* what;
    bool of_file;  // whether a model's file may set the value
};

// In the order of engine::VisitSampling.
constexpr std::array<SamplingHelp, 12> kSamplingHelp = {{
    {"Sampling temperature; 0: always take the most likely token", true},
    {"Sample from the K most likely tokens; 0: from all tokens", true},
    {"Sample from the smallest set of most likely tokens with this total probability; 1: from all "
     "tokens",
     true},
    {"Drop tokens below this share of the most likely token's probability; 0: none", true},
    {"Make recent tokens less likely; 1: off", true},
    {"Sample from the most typical tokens with this total probability; 1: from all tokens", true},
    {"Drop tokens more than N standard deviations below the best logit; 0: none", false},
    {"XTC: probability that a step excludes all but the least likely of its top choices; 0: off",
     true},
    {"XTC: least probability of a top choice; above 0.5: XTC is off", true},
    {"DRY: penalty for tokens that continue a repetition of the text; 0: off", false},
    {"DRY: factor of the penalty for each further repeated token; below 1: DRY is off", false},
    {"DRY: longest repetition without a penalty, in tokens", false},
}};

std::string FlagOf(const char* name) {
    return std::string("--") + name;
}

}  // namespace

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
    engine::VisitSampling(sampler, given, [&](const char* name, const auto& value, auto& hint) {
        if (command.Given(FlagOf(name))) hint = value;
    });
    if (greedy) given.temperature = 0;
    return given;
}

void AddSamplingFlags(const Command& command, SamplingFlags& flags) {
    const Command group = command.Group("Sampling");
    flags.command = command;
    model_files::SamplingHints unused;
    size_t at = 0;
    engine::VisitSampling(flags.sampler, unused, [&](const char* name, auto& value, auto&) {
        const SamplingHelp& help = kSamplingHelp.at(at++);
        group.AddOption(
            FlagOf(name), value,
            fmt::format("{} (default: {}{})", help.what,
                        help.of_file ? "the value in the model's file, else " : "", value));
    });
    group.AddFlag(
        "--greedy", flags.greedy,
        "Always take the most likely token, so that the answer is reproducible (--temp 0)");
    group.AddChoice("--generation-config", flags.generation_config, {"auto", "none"},
                    "Defaults of the sampler: auto: from the model's file (generation_config.json, "
                    "general.sampling.*); none: Weft's (default: auto)");
}

}  // namespace weft::cli
