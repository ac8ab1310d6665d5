// The subcommands. Each Add... function registers one with its flags and help; its callback sets
// `status`, the exit status.
//
// Includes what every command uses: flags, output, fmt and the containers.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line/flags.h"
#include "cli/command_line/options.h"
#include "cli/terminal/output.h"

namespace weft::cli {

void AddRun(const Command& app, int& status);
void AddBench(const Command& app, int& status);
void AddLogits(const Command& app, int& status);
void AddPerplexity(const Command& app, int& status);
void AddTokenize(const Command& app, int& status);
void AddInspect(const Command& app, int& status);
void AddQuantize(const Command& app, int& status);
void AddMerge(const Command& app, int& status);
void AddModels(const Command& app, int& status);
void AddNet(const Command& app, int& status);
void AddPull(const Command& app, int& status);
void AddListCommand(const Command& app, int& status);
void AddShow(const Command& app, int& status);
void AddRm(const Command& app, int& status);
void AddWorker(const Command& app, int& status);
void AddUp(const Command& app, int& status);
void AddHosts(const Command& app, int& status);
void AddDoctor(const Command& app, int& status);
void AddServe(const Command& app, int& status);
void AddPlan(const Command& app, int& status);
void AddKey(const Command& app, int& status);
void AddTrain(const Command& app, int& status);
void AddSubmit(const Command& app, int& status);
void AddJob(const Command& app, int& status);
void AddCompletion(const Command& app, int& status);
void AddMan(const Command& app, const Parser& parser, int& status);  // parser: outlives app

// `weft --version`: built-in features, and features of this CPU in use.
void PrintVersion(bool json);

}  // namespace weft::cli
