// What a DeepSpeed configuration makes of a training job.
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

// What the command line gave, of what DsFlags hasn't.
struct DsGiven {
    bool schedule = false, optimizer = false, recompute = false, save_type = false;
    bool overlap = false;
    bool grad_dtype = false;
};

// How a run is told of, as the file has it.
struct DsTelling {
    int64_t print_every = 1;       // updates between two lines on the terminal
    std::string csv, tensorboard;  // a file, a folder; empty: as without the file
};

// job and save: as the command line has them; after it as the file has them, too (`config` was
// resolved with the same command line). `notes` gets a line for each thing that is done in another
// way than the file says, and leads to the same or a better result.
// Errors, naming `where` and the key: kUnsupported (an optimizer that Weft lacks), kUsage (file and
// command line contradict each other).
Status ApplyDsConfig(const DsConfig& config, const std::string& where, const DsGiven& given,
                     TrainJob& job, TrainExportOptions& save, DsTelling& telling,
                     std::vector<std::string>& notes);

// All of a job that decides what is learnt, at what cost, once nothing is "auto" any more.
nlohmann::ordered_json ResolvedJson(const TrainJob& job, const TrainExportOptions& save,
                                    const TrainLayout& layout, int64_t steps);

}  // namespace weft::train
