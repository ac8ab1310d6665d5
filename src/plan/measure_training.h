// Measures training on a cluster for `weft plan --measure` (measure.h): a few updates of a small
// model, all ranks as replicas, with op timings on.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/measure.h"

namespace weft::plan {

// Errors: kUsage, naming the flag.
Result<DType> ParseTrainType(std::string_view name);

// Adds the rates measured for training in `type` to machine.measured->training. Errors: kUsage (the
// type), those of the ranks.
Status MeasureTraining(const MeasureOptions& options, const std::string& type, Machine& machine);

}  // namespace weft::plan
