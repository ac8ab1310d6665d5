// TrainJob: all settings that a rank needs for training. The command line fills it in, and rank 0
// sends it to the other ranks as JSON (base/field_codec.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "train/data/open.h"
#include "train/sample.h"
#include "train/saver.h"
#include "train/schedule.h"
#include "train/trainer.h"

namespace weft::train {

inline constexpr char kTrainJobKind[] = "train";

struct TrainJob {
    TrainerOptions trainer;  // its sequence equals that of the data
    DatasetOptions data;
    Schedule schedule;  // total_steps 0: the steps of the run
    int64_t steps = 0;  // updates; 0: set by epochs
    int64_t epochs = 1;
    bool drop_last = false;  // skip the incomplete last batch of the epochs
    // Updates between evaluations on the test part, plus one at the end; 0: after each epoch.
    // Without a test part there are no evaluations.
    int64_t eval_every = 0;
    SampleOptions sample;
    SaveOptions save;
    // Ranks may join and leave (elastic.h); then global_batch is the number of sequences per
    // update, over all ranks; 0: micro-batch times passes times replicas.
    bool elastic = false;
    int64_t global_batch = 0;
};

// Checks that counts are consistent and paths are UTF-8. Errors: kUsage.
Status CheckTrainJob(const TrainJob& job);

// Makes paths absolute and canonical: ranks may have other working folders. Errors: kIo.
Status MakeAbsolute(TrainJob& job);

// Copies the sequence length and seeds of the data to the trainer.
void TakeDataWords(TrainJob& job);

std::string TrainJobToJson(const TrainJob& job);
// Errors: kCorrupt, with the field, its value and the range; otherwise as CheckTrainJob.
Result<TrainJob> TrainJobFromJson(const std::string& text);

}  // namespace weft::train
