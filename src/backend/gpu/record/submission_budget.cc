#include "backend/gpu/record/submission_budget.h"

#include <algorithm>
#include <cmath>

namespace weft::backend::on_gpu {
namespace {

// In submissions shorter than this, starting and waiting takes a large part of the time. Short
// submissions only show that the device is not slower; the shorter they are, the less they count.
constexpr double kLeastToJudge = 2e-3;
constexpr double kDecay = 0.95;
// Software GPUs share the cores with other programs, so they have a longer deadline.
constexpr int64_t kGpuMs = 10'000, kHostMs = 120'000;
constexpr double kPatience = 50;
// Maximum parts of one op. Each part is a submission, which costs time.
constexpr double kMostPartsOfOp = 1024;

}  // namespace

// Rates of a small integrated GPU, and of a software GPU.
SubmissionBudget::SubmissionBudget(gpu::Kind kind, double most_seconds)
    : most_seconds_(most_seconds),
      flops_per_s_(kind == gpu::Kind::kCpu ? 2e9 : 5e11),
      bytes_per_s_(kind == gpu::Kind::kCpu ? 5e8 : 2e10),
      least_deadline_ms_(kind == gpu::Kind::kCpu ? kHostMs : kGpuMs) {}

double SubmissionBudget::Estimate(const program::OpCost& cost) const {
    const auto bytes = static_cast<double>(cost.read_bytes + cost.written_bytes);
    return cost.flops / flops_per_s_ + bytes / bytes_per_s_;
}

uint32_t SubmissionBudget::PartsOf(double estimate) const {
    const double parts = std::ceil(estimate * slowness_ / aim_seconds());
    return static_cast<uint32_t>(std::clamp(parts, 1.0, kMostPartsOfOp));
}

bool SubmissionBudget::Took(double estimate, double seconds) {
    if (estimate <= 0) return false;
    const double now = seconds / estimate;
    // The slowness rises at once and falls slowly.
    if (now < slowness_) {
        const double weight = std::min(1.0, seconds / kLeastToJudge);
        slowness_ = std::max(now, std::pow(kDecay, weight) * slowness_);
    } else if (seconds >= kLeastToJudge) {
        slowness_ = now;
    }
    return seconds > most_seconds_;
}

int64_t SubmissionBudget::DeadlineMs(double estimate) const {
    return least_deadline_ms_ + static_cast<int64_t>(kPatience * 1e3 * estimate * slowness_);
}

}  // namespace weft::backend::on_gpu
