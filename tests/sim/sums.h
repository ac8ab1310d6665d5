// The smallest job: each step sums numbers over all ranks, and every rank checks every sum.
#pragma once

#include <memory>

#include "sim/plan.h"
#include "sim/world.h"

namespace weft::sim {

std::unique_ptr<Workload> MakeSums(const Plan& plan);

}  // namespace weft::sim
