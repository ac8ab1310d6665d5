// A job of the engine: requests arrive over time; answers must equal those of one process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/plan.h"
#include "sim/world.h"

namespace weft::sim {

inline constexpr int kRequests = 6;  // different ones

// The answers of one process, without a simulation. model: path of a tiny model.
std::vector<std::string> UndisturbedAnswers(const std::string& model);

std::unique_ptr<Workload> MakeAnswers(const Plan& plan, const std::string& model,
                                      const std::vector<std::string>& undisturbed);

}  // namespace weft::sim
