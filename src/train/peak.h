// What a rank's threads could do at most, to hold a run's speed against.
#pragma once

#include "backend/training.h"

namespace weft::train {

// FLOP/s of the matrix products of this rank, all its threads at work, where the operands lie in
// their caches: measured, for some 20 ms. What a whole step reaches of it is its share of the peak.
double MeasurePeak(backend::TrainingExecutable& training, kernels::dense::Compute compute);

}  // namespace weft::train
