// Applies a DeepSpeed configuration to a training job.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/config/ds_config.h"
#include "train/export.h"
#include "train/parallel/layout.h"
#include "train/train_job.h"

namespace weft::train {

// Options given on the command line that DsFlags lacks.
struct DsGiven {
    bool schedule = false, optimizer = false, recompute = false, save_type = false;
    bool overlap = false;
    bool grad_dtype = false;
};

// Logging options of the DeepSpeed file.
struct DsTelling {
    int64_t print_every = 1;       // updates between two lines on the terminal
    std::string csv, tensorboard;  // a file, a folder; empty: the file names none
};

// job and save: in: as set by the command line; out: with the file's settings added (`config` was
// resolved with the same command line). `notes` gets a line for each setting that Weft implements
// differently with the same or a better result.
// Errors, naming `where` and the key: kUnsupported (an optimizer that Weft lacks), kUsage (file and
// command line contradict each other).
Status ApplyDsConfig(const DsConfig& config, const std::string& where, const DsGiven& given,
                     TrainJob& job, TrainExportOptions& save, DsTelling& telling,
                     std::vector<std::string>& notes);

// The job's settings that affect the result or the cost, with every "auto" resolved.
nlohmann::ordered_json ResolvedJson(const TrainJob& job, const TrainExportOptions& save,
                                    const TrainLayout& layout, int64_t steps);

}  // namespace weft::train
