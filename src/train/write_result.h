// What a job was for, written where nothing that passes may lose it.
#pragma once

#include <string>

#include "base/result.h"
#include "model_files/model_file.h"
#include "train/export.h"
#include "train/trainer.h"

namespace weft::train {

// Writes the adapter where one was trained, else the model, into words.folder. A disk that is full
// for a moment loses neither: old checkpoints go for it, all but the newest, and it is tried again;
// where there is no checkpoint, until a signal comes. The path of what was written.
// Errors: those of the last attempt, with where what was learnt is.
Result<std::string> WriteResult(const model_files::ModelSource& trained,
                                const TrainerOptions& trainer, const ExportWords& words);

}  // namespace weft::train
