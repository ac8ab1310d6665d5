// Options of group relative policy optimization (--loss grpo), with TRL's names and defaults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::train {

struct GrpoOptions {
    bool on = false;
    // Sampling.
    int64_t group = 8;              // completions of a prompt
    int64_t completion_tokens = 0;  // most tokens of a completion; 0: half of the sequence
    int64_t most_tokens = 0;        // the resulting number
    double temperature = 1, top_p = 1;
    int64_t top_k = 0;  // 0: all
    int64_t slots = 0;  // most completions that a replica generates at once; 0: the default
    // Loss.
    double beta = 0;  // weight of the KL divergence from the reference model
    double epsilon = 0.2;
    double epsilon_high = 0;  // 0: epsilon
    int64_t iterations = 1;   // updates with the same completions
    std::string loss_type = "dapo", scale_rewards = "group", importance_level = "token";
    bool mask_truncated = false;
    // Rewards (grpo/rewards.h); weights: one for each reward, or empty.
    std::vector<std::string> commands{}, regexes{}, schemas{}, models{};
    std::vector<double> weights{};
    int64_t reward_timeout_s = 60, reward_workers = 1;  // of commands
    std::string day{};                                  // that chat templates of models show

    double high() const { return epsilon_high > 0 ? epsilon_high : epsilon; }
    size_t rewards() const {
        return commands.size() + regexes.size() + schemas.size() + models.size();
    }
};

// Errors: kUsage; the message names the flag.
Status CheckGrpo(const GrpoOptions& options);

}  // namespace weft::train
