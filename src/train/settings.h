// The settings and progress of a job in its checkpoints, and the comparison with the settings of a
// job that resumes.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model_files/hf/json.h"
#include "train/checkpoint/reader.h"
#include "train/train_job.h"

namespace weft::train {

// The "settings" object of a manifest's state, with resolved schedule steps. batch: sequences per
// update, over all ranks.
model_files::hf::Json SettingsOf(const TrainJob& job, int64_t batch);

// Compares the settings in a checkpoint's state with those of the job. Settings that shape the
// optimizer state or the adapters must be equal: kUsage, with both values of each flag. Differences
// that only change the curve are logged if `says`. A state without settings is of an earlier
// version; the function compares only the values that it has.
Status CompareSettings(const model_files::hf::Json& state, const TrainJob& job, int64_t batch,
                       const std::string& checkpoint, bool says);

// Writes "updates" and "loss_scale" into a manifest's state.
void NoteProgress(const TrainerProgress& progress, model_files::hf::Json& state);
// A manifest without "updates" and "loss_scale" is of a version without float16, which skipped no
// step. Errors: kCorrupt, naming the folder.
Result<TrainerProgress> ProgressOf(const Checkpoint& checkpoint);

}  // namespace weft::train
