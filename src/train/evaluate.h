// Computes the loss over a data set, without training.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "train/data/loader.h"
#include "train/trainer.h"

namespace weft::train {

struct Evaluation {
    double loss = 0;  // mean over the targets
    int64_t targets = 0;
    std::vector<double> values;  // of ValueNames: means over the batches
    bool stopped = false;        // a rank requested a stop, so the evaluation is incomplete
};

// Evaluates all batches of the loader, which must be finite. Collective.
// Errors: the loader's; Trainer::Evaluate's; kCorrupt: the loss is not finite.
Result<Evaluation> EvaluateAll(Trainer& trainer, Loader loader);

}  // namespace weft::train
