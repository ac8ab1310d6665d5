// The subcommands. Each Add... registers one with its flags and help; its callback sets `status`,
// the exit status.
#pragma once

#include <CLI/CLI.hpp>

namespace weft::cli {

void AddRun(CLI::App& app, int& status);
void AddBench(CLI::App& app, int& status);
void AddBenchServe(CLI::App& app, int& status);
void AddLogits(CLI::App& app, int& status);
void AddPerplexity(CLI::App& app, int& status);
void AddTokenize(CLI::App& app, int& status);
void AddInspect(CLI::App& app, int& status);
void AddQuantize(CLI::App& app, int& status);
void AddMerge(CLI::App& app, int& status);
void AddModels(CLI::App& app);
void AddNet(CLI::App& app, int& status);
void AddTrace(CLI::App& app);
void AddPull(CLI::App& app, int& status);
void AddWorker(CLI::App& app, int& status);
void AddDoctor(CLI::App& app, int& status);
void AddServe(CLI::App& app, int& status);
void AddKey(CLI::App& app, int& status);
void AddTrain(CLI::App& app, int& status);

// `weft --version`: what is built in and what this CPU takes.
void PrintVersion(bool json);

}  // namespace weft::cli
