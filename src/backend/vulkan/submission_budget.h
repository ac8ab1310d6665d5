// How long a device takes for what a step costs: so a step is cut into submissions that are short
// enough for the driver's watchdog, and waits have deadlines.
//
// Seconds of an op are estimated from its FLOPs and bytes (program/cost.h) at modest rates, and
// corrected by how much longer the slowest submission of late took than that.
#pragma once

#include <cstdint>

#include "gpu/device.h"
#include "program/cost.h"

namespace weft::backend::vulkan {

class SubmissionBudget {
  public:
    // most_seconds: of a submission. amdgpu's watchdog ends what takes 2 s, and the display waits.
    SubmissionBudget(gpu::Kind kind, double most_seconds);
    // At the modest rates.
    double Estimate(const program::OpCost& cost) const;
    // Whether another op of `more` goes into a submission of `so_far` (both of Estimate).
    bool Fits(double so_far, double more) const {
        return (so_far + more) * slowness_ <= aim_seconds();
    }
    // How many parts of work of this Estimate fit into submissions of their own.
    uint32_t PartsOf(double estimate) const;
    // A submission took so long. True: too long, its recording is to be cut again.
    bool Took(double estimate, double seconds);
    int64_t DeadlineMs(double estimate) const;
    // Seconds for a second of Estimate.
    double slowness() const { return slowness_; }

  private:
    // What takes longer than was foreseen shall not take too long.
    double aim_seconds() const { return most_seconds_ / 2; }

    double most_seconds_, flops_per_s_, bytes_per_s_;
    double slowness_ = 1;
    int64_t least_deadline_ms_;
};

}  // namespace weft::backend::vulkan
