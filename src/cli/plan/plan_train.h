// Flags and output of training predictions, for `weft plan --train` and `weft train estimate`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/command_line/flags.h"
#include "plan/train_search.h"

namespace weft::cli {

struct PlanTrainFlags {
    std::string model, machines;
    bool train = false;  // weft plan: requested
    std::string dtype = "bf16", grad_dtype = "auto", optim = "adamw";
    std::string recompute = "auto", sequence_parallel = "auto", zero = "auto";
    int64_t sequence = 0, epoch = 0;
    train::LoraOptions lora;
    int64_t completions = 0, group = 8, completion = 0;  // as in plan::TrainJob
    double drive_gb_per_s = 0;
    std::vector<std::string> reward_models;
    plan::TrainSettings wishes;
    bool vectors = false;  // --loss reward, classification, contrastive
    bool explain = false, json = false;
};

// Texts of the help of both commands. kPlanWords: below the examples.
inline constexpr const char* kPlanModelHelp = "Model file, folder, config.json or name";
inline constexpr const char* kMachinesHelp =
    "Hosts and their wire, such as 4xstrix-halo,roce or dgx-spark+rtx-3090:2,10gbe";
inline constexpr const char* kPlanWords =
    "MODEL is a GGUF file, a Hugging Face folder, a config.json, synthetic:NAME, or the name of a\n"
    "well-known model, NAME[:TYPE]. TYPE is a type of 'weft quantize', or 4bit, 8bit, FP8, AWQ,\n"
    "UD-Q4_K_XL, ... No weights are read.\n"
    "--machines COUNTxMACHINE[:DEVICES][+MEMORY][+COUNTxMACHINE],WIRE: COUNT hosts, each with\n"
    "DEVICES devices. MACHINE is a name in machines/machines.json, a processor (ryzen-9-7950x), "
    "or\n"
    "the path of a machine file. MEMORY of a host of GPUs (128gb, 64gb-ddr4): its processor "
    "computes\n"
    "the experts that do not fit into the GPUs.\n"
    "docs/plan.md states which figures are measured.";

// Adds `weft train estimate`.
void AddEstimate(const Command& train, int& status);
// Adds flags besides --machines, --explain and --json, which both commands define themselves.
// needed: the flag that the added flags require; may be null.
void AddPlanTrainFlags(const Command& command, PlanTrainFlags& flags, const Option* needed);
Status RunPlanTrain(PlanTrainFlags& flags);

// The --machines value for a layout's hosts only: the `used` hosts, or the first `hosts` if `used`
// is empty.
plan::ClusterSpec UsedHosts(std::vector<int> used, int hosts, const plan::ClusterSpec& cluster);

}  // namespace weft::cli
