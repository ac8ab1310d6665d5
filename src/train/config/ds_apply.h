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

// Whether the command line has these options, which DsFlags lacks.
struct DsGiven {
    bool schedule = false, optimizer = false, recompute = false, save_type = false;
    bool overlap = false;
    bool grad_dtype = false;
};

// Logging options of the DeepSpeed file.
struct DsTelling {
    int64_t print_every = 1;       // updates between two lines on the terminal
    std::string csv, tensorboard;  // log file, log folder; empty: the configuration names none
};

// Adds the file's settings to `job` and `save`, which the command line has already set. `config`
// must have been resolved with the same command line. notes: receives a line for each setting that
// Weft implements differently, with the same or a better result.
// Errors: kUnsupported (an optimizer that Weft lacks), kUsage (file and command line contradict
// each other); the message has `where` and the key.
Status ApplyDsConfig(const DsConfig& config, const std::string& where, const DsGiven& given,
                     TrainJob& job, TrainExportOptions& save, DsTelling& telling,
                     std::vector<std::string>& notes);

// The job's settings that affect the result or the cost, with every "auto" resolved.
nlohmann::ordered_json ResolvedJson(const TrainJob& job, const TrainExportOptions& save,
                                    const TrainLayout& layout, int64_t steps);

}  // namespace weft::train
