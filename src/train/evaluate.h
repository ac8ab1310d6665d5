// The loss over a data set, nothing learnt.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "train/data/loader.h"
#include "train/trainer.h"

namespace weft::train {

struct Evaluation {
    double loss = 0;  // mean over the targets
    int64_t targets = 0;
    bool stopped = false;  // a rank wished to stop: this is no evaluation
};

// Over all batches of the loader, which is to end. All ranks call it alike.
// Errors: the loader's; Trainer::Evaluate's; kCorrupt: no finite loss.
Result<Evaluation> EvaluateAll(Trainer& trainer, Loader loader);

}  // namespace weft::train
