// Parts of `weft train`. Each Add... hangs one subcommand under `train`; its callback sets
// `status`, the exit status.
#pragma once

#include <CLI/CLI.hpp>

#include "train/data/open.h"

namespace weft::cli {

// weft train data inspect.
void AddTrainData(CLI::App& train, int& status);
// weft train estimate.
void AddTrainEstimate(CLI::App& train, int& status);
// weft train plot.
void AddTrainPlot(CLI::App& train, int& status);

// The flags that say what is trained on, the same for `weft train` and `weft train data inspect`:
// --data, --prompt-type, --seq-len, --test-split, --seed, --no-pack, --no-shuffle, --long,
// --skip-bad.
void AddDataFlags(CLI::App& app, train::DataWords& flags);

}  // namespace weft::cli
