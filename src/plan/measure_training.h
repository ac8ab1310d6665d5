// Measures training on a cluster for `weft plan --measure` (measure.h): runs a few updates of a
// small model with op timings on. Each rank is a replica.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/measure.h"

namespace weft::plan {

// Parses a value of --train-types. Errors: kUsage.
Result<DType> ParseTrainType(std::string_view name);

// Adds the rates measured for training in `type` to machine.measured->training. Errors: kUsage
// (unknown type), and those of the ranks.
Status MeasureTraining(const MeasureOptions& options, const std::string& type, Machine& machine);

}  // namespace weft::plan
