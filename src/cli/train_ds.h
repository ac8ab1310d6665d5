// `weft train --ds-config FILE`: DeepSpeed's configuration beside the command line's flags.
#pragma once

#include <string>

#include "cli/options.h"
#include "train/config/ds_apply.h"

namespace weft::cli {

// Reads the file and fills it into `job` and `save`, which have what the command line says; what
// that gave is asked of `command`. ranks: of the whole run. Warnings and notes go to standard
// error. Errors: those of ReadDsConfig, ApplyDsConfig, the model's file and the layout.
Status ResolveDs(const Command& command, const std::string& path, int ranks, train::TrainJob& job,
                 train::TrainExportOptions& save, train::DsTelling& telling);

}  // namespace weft::cli
