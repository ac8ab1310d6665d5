// weft train estimate: predicts training on other machines, as weft plan --train.
#include <memory>

#include "cli/flags.h"
#include "cli/plan_train.h"
#include "cli/train.h"

namespace weft::cli {
namespace {

constexpr const char* kTrainEstimateFooter =
    "Examples:\n"
    "  weft train estimate llama-3.1-70b --machines 2xmi300x,roce-8x400g --zero 3 --seq-len 512\n"
    "  weft train estimate model.gguf --machines 4xmy-machine.json,10gbe --tp 2 --micro-batch 4\n\n"
    "The same as 'weft plan MODEL --train'. No weights are read.";

}  // namespace

void AddTrainEstimate(const Command& train, int& status) {
    auto flags = std::make_shared<PlanTrainFlags>();
    const Command command =
        train.AddCommand("estimate", "Predict time and memory of training on described machines");
    command.Footer(kTrainEstimateFooter);
    command.AddOption("MODEL", flags->model, "Model, its config.json or its name").Required();
    command.AddOption("--machines", flags->machines, "Machines, such as 2xh100,ib-8x400g")
        .Required();
    command.AddFlag("--explain", flags->explain, "Show the time of each part of the best layout");
    AddPlanTrainFlags(command, *flags, nullptr);
    AddJson(command, flags->json);
    SetCallback(command, flags, flags->json, status, RunPlanTrain);
}

}  // namespace weft::cli
