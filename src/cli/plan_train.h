// Flags and output of predictions of training: of `weft plan --train` and `weft train estimate`.
#pragma once

#include <memory>
#include <string>

#include "cli/flags.h"
#include "plan/train_search.h"

namespace weft::cli {

struct PlanTrainFlags {
    std::string model, machines;
    bool train = false;  // weft plan: asked for
    std::string dtype = "bf16", grad_dtype = "auto", optim = "adamw";
    std::string recompute = "auto", sequence_parallel = "auto", zero = "auto";
    int64_t sequence = 1024, lora_rank = 0, epoch = 0;
    std::string within, budget;  // machines that do it
    plan::TrainWishes wishes;
    bool explain = false, json = false;
};

// Beside --machines, --explain and --json, which both commands have of their own.
// needed: the flag without which these are refused; may be null.
void AddPlanTrainFlags(const Command& command, PlanTrainFlags& flags, const Option* needed);
Status RunPlanTrain(PlanTrainFlags& flags);

// What --machines would be of a layout's hosts alone: those `used`, or where these are none the
// first ones.
plan::ClusterSpec UsedHosts(std::vector<int> used, int hosts, const plan::ClusterSpec& cluster);

}  // namespace weft::cli
