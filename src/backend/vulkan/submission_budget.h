// Estimates the device time of a step's ops, so that steps are divided into submissions short
// enough for the driver's watchdog, and waits have deadlines.
//
// The seconds of an op are estimated from its FLOPs and bytes (program/cost.h) at modest rates, and
// multiplied by the ratio of measured to estimated time of the slowest recent submission.
#pragma once

#include <cstdint>

#include "gpu/device.h"
#include "program/cost.h"

namespace weft::backend::vulkan {

class SubmissionBudget {
  public:
    // most_seconds: longest submission. amdgpu's watchdog ends a submission after 2 s, and the
    // display waits meanwhile.
    SubmissionBudget(gpu::Kind kind, double most_seconds);
    // Seconds at the modest rates.
    double Estimate(const program::OpCost& cost) const;
    // Whether an op of estimate `more` fits into a submission of estimate `so_far`.
    bool Fits(double so_far, double more) const {
        return (so_far + more) * slowness_ <= aim_seconds();
    }
    // Number of submissions into which work of this estimate is divided.
    uint32_t PartsOf(double estimate) const;
    // Notes the time of a submission. True: too long; its recording must be divided again.
    bool Took(double estimate, double seconds);
    int64_t DeadlineMs(double estimate) const;
    // Measured seconds per estimated second.
    double slowness() const { return slowness_; }

  private:
    // Half of the limit, so that a submission slower than estimated still stays below it.
    double aim_seconds() const { return most_seconds_ / 2; }

    double most_seconds_, flops_per_s_, bytes_per_s_;
    double slowness_ = 1;
    int64_t least_deadline_ms_;
};

}  // namespace weft::backend::vulkan
