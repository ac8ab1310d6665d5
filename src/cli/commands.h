// The subcommands. Each Add... registers one with its flags and help; its callback sets `status`.
#pragma once

#include <CLI/CLI.hpp>

namespace weft::cli {

void AddRun(CLI::App& app, int& status);
void AddWorker(CLI::App& app, int& status);

}  // namespace weft::cli
