// Estimates how long the device takes for a step's ops. The estimate is used to divide a step into
// submissions that are short enough for the driver's watchdog, and to set deadlines for waits.
//
// An op's seconds are estimated from its FLOPs and bytes (program/cost.h), at rates that even a
// slow device reaches. The estimate is then multiplied by slowness(), the ratio of measured to
// estimated time of the slowest recent submission.
#pragma once

#include <cstdint>

#include "gpu/device.h"
#include "program/cost.h"

namespace weft::backend::on_gpu {

class SubmissionBudget {
  public:
    // most_seconds: maximum duration of a submission. amdgpu's watchdog ends a submission after 2
    // s, and the display is not updated while a submission runs.
    SubmissionBudget(gpu::Kind kind, double most_seconds);
    // Estimated seconds of an op, not yet multiplied by slowness().
    double Estimate(const program::OpCost& cost) const;
    // Whether an op with the estimate `more` fits into a submission with the estimate `so_far`.
    bool Fits(double so_far, double more) const {
        return (so_far + more) * slowness_ <= aim_seconds();
    }
    // Number of submissions into which work with this estimate is divided.
    uint32_t PartsOf(double estimate) const;
    // Notes the measured time of a submission. Returns true if the submission took too long, so
    // that its recording must be divided again.
    bool Took(double estimate, double seconds);
    int64_t DeadlineMs(double estimate) const;
    // Measured seconds per estimated second.
    double slowness() const { return slowness_; }

  private:
    // Half of the limit, so that even a submission that is slower than estimated stays below the
    // limit.
    double aim_seconds() const { return most_seconds_ / 2; }

    double most_seconds_, flops_per_s_, bytes_per_s_;
    double slowness_ = 1;
    int64_t least_deadline_ms_;
};

}  // namespace weft::backend::on_gpu
