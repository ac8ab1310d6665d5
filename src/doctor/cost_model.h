// Computes what faults cost in speed (doctor/cost.h).
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "doctor/cost.h"
#include "doctor/finding.h"
#include "plan/predict.h"
#include "plan/shapes.h"

namespace weft::doctor {

class CostModel {
  public:
    static Result<CostModel> Open();
    // nullopt: too little is known, or no known model fits.
    std::optional<Cost> Answer(const CostQuestion& question);

    // nullopt: the host is not in machines/.
    std::optional<plan::Machine> MachineOf(const HostFacts& host) const;
    // The hosts of a question as a cluster of `weft plan`; nullopt: the link is unknown.
    std::optional<plan::ClusterSpec> ClusterOf(const HostFacts& host, const HostState& state) const;
    static plan::Workload load() { return {}; }

  private:
    const plan::OpenedShape* Shape(const std::string& name);
    std::optional<plan::Prediction> Predicted(const std::string& model,
                                              const plan::ClusterSpec& cluster);
    std::optional<plan::Prediction> Fitting(const plan::ClusterSpec& cluster, std::string& model);

    plan::Library library_;
    std::map<std::string, plan::OpenedShape> shapes_;
};

// Sets Finding::cost of each finding that requests it.
Status StateCosts(std::span<Finding> findings);

}  // namespace weft::doctor
