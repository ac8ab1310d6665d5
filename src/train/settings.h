// Stores the settings and progress of a job in its checkpoints, and compares them with the settings
// of a job that resumes.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model_files/hf/json.h"
#include "train/checkpoint/reader.h"
#include "train/data/loader.h"
#include "train/train_job.h"

namespace weft::train {

// The "settings" object of a manifest's state, with resolved schedule steps. batch: sequences per
// update, over all ranks.
model_files::hf::Json SettingsOf(const TrainJob& job, int64_t batch);

// Compares the settings in a checkpoint's state with the job's settings. Settings that determine
// the form of the optimizer state or of the adapters must be equal. Other differences, which only
// change the loss curve, are logged if `says`. A checkpoint of an earlier version may lack
// settings; only those that it has are compared. Errors: kUsage, with both values of each flag in
// the message.
Status CompareSettings(const model_files::hf::Json& state, const TrainJob& job, int64_t batch,
                       const std::string& checkpoint, bool says);

// Whether evaluations of the job use the same loss as evaluations of the checkpoint's job, as far
// as the checkpoint's state has it.
bool IsSameLoss(const model_files::hf::Json& state, const TrainJob& job);

// CompareSettings, and checks that the job, of `steps` updates, does not end before the checkpoint.
// at: the position in the data from which the job continues. Errors: kUsage.
Status CheckGoesOn(const Checkpoint& checkpoint, const TrainJob& job, int64_t batch, int64_t steps,
                   const Cursor& at, bool says);

// Writes "updates", "average", "schedule_free" and "loss_scale" into a manifest's state.
void NoteProgress(const TrainerProgress& progress, const UpdateOptions& update,
                  model_files::hf::Json& state);
// Reads the progress from a checkpoint. A manifest without "updates" and "loss_scale" was written
// by a version without float16, which never skipped a step. Errors: kCorrupt; the message names the
// folder.
Result<TrainerProgress> ProgressOf(const Checkpoint& checkpoint, const UpdateOptions& update);

}  // namespace weft::train
