// A job that trains a tiny model and saves checkpoints: its losses must equal those of one process,
// and its checkpoints must stay readable, also while disks are slow, full or broken.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "sim/plan.h"
#include "sim/world.h"

namespace weft::sim {

// The losses of one process, by update, without a simulation. model: path of a tiny model.
std::map<int64_t, double> UndisturbedLosses(const std::string& model);

// folder: of the job's checkpoints; it is emptied first.
std::unique_ptr<Workload> MakeTraining(const Plan& plan, const std::string& model,
                                       const std::string& folder,
                                       const std::map<int64_t, double>& undisturbed);

}  // namespace weft::sim
