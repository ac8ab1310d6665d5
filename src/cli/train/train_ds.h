// `weft train --ds-config FILE`: applies DeepSpeed's configuration with the command line's flags.
#pragma once

#include <string>

#include "cli/command_line/options.h"
#include "train/config/ds_apply.h"

namespace weft::cli {

// Reads the file and applies it to `job` and `save`, which hold the command line's values;
// `command` has the given flags. ranks: of the whole run. Prints warnings and notes on standard
// error. Errors: as ReadDsConfig and ApplyDsConfig; errors of the model's file and the layout.
Status ResolveDs(const Command& command, const std::string& path, int ranks, train::TrainJob& job,
                 train::TrainExportOptions& save, train::DsTelling& telling);

}  // namespace weft::cli
