// TrainJob: all that a rank needs to know to train. The command line fills it in, and it travels
// from rank 0 to the others as JSON (base/field_codec.h).
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
    TrainerOptions trainer;  // its sequence is that of the data
    DatasetOptions data;
    Schedule schedule;  // total_steps 0: of the run
    int64_t steps = 0;  // updates; 0: by epochs
    int64_t epochs = 1;
    bool drop_last = false;  // of epochs: no update from less than a whole batch
    // Updates from one evaluation on the test part to the next, and one at the end; 0: after each
    // epoch. Without a test part: none.
    int64_t eval_every = 0;
    SampleOptions sample;
    SaveOptions save;
    // Ranks may come and go (elastic.h); then sequences of an update, over all ranks. 0: as many as
    // the replicas' passes make.
    bool elastic = false;
    int64_t global_batch = 0;
};

// Counts that make sense together, and paths that are UTF-8. Errors: kUsage.
Status CheckTrainJob(const TrainJob& job);

// Paths become absolute, each in one spelling: ranks may have other working folders. Errors: kIo.
Status MakeAbsolute(TrainJob& job);

// The trainer's sequence and seeds are those of the data.
void TakeDataWords(TrainJob& job);

std::string TrainJobToJson(const TrainJob& job);
// Errors: kCorrupt, with the field, its value and the range; else as CheckTrainJob.
Result<TrainJob> TrainJobFromJson(const std::string& text);

}  // namespace weft::train
