// Parts of `weft train`. Each Add... function registers one subcommand of `train`, whose callback
// sets the exit status `status`.
#pragma once

#include "cli/command_line/options.h"
#include "train/data/open.h"

namespace weft::cli {

// weft train data inspect.
void AddTrainData(const Command& train, int& status);

// The flags that define the training data, the same for `weft train` and `weft train data inspect`:
// --data, --prompt-type, --seq-len, --test-split, --seed, --no-pack, --no-shuffle, --long,
// --skip-bad.
void AddDataFlags(const Command& app, train::DatasetOptions& flags);

}  // namespace weft::cli
