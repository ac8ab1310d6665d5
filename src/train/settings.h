// What a checkpoint notes of its job's settings and progress, and how the settings of a job that
// resumes it differ.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model_files/hf/json.h"
#include "train/checkpoint/reader.h"
#include "train/train_job.h"

namespace weft::train {

// For a manifest's state, under "settings". The schedule's steps are resolved. batch: sequences of
// an update, over all ranks.
model_files::hf::Json SettingsOf(const TrainJob& job, int64_t batch);

// Compares the settings in a checkpoint's state with those of the job. What the state of an
// optimizer or of adapters depends on must be equal: kUsage, with both values of each flag. What
// only changes the curve is told in the log where `says`. A state without settings is of an earlier
// version, and is compared as far as it goes.
Status CompareSettings(const model_files::hf::Json& state, const TrainJob& job, int64_t batch,
                       const std::string& checkpoint, bool says);

// "updates" and "loss_scale" of a manifest's state.
void NoteProgress(const TrainerProgress& progress, model_files::hf::Json& state);
// A manifest that has neither is of a version without float16: no step was skipped. Errors:
// kCorrupt, naming the folder.
Result<TrainerProgress> ProgressOf(const Checkpoint& checkpoint);

}  // namespace weft::train
