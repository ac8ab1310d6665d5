#include "chat/meter.h"

#include <ctime>

namespace weft::chat::jinja {
namespace {

int64_t ThreadCpuNs() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

Meter::Meter(const RenderLimits& limits) : limits_(limits), began_ns_(ThreadCpuNs()) {}

void Meter::Look() {
    until_look_ = kLookSteps;
    if (ThreadCpuNs() - began_ns_ <= limits_.cpu_ms * 1'000'000) return;
    Fail(ErrorCode::kCorrupt, "rendering takes more than {} ms of processor time",
         limits_.cpu_ms);
}

void Meter::Throw(ErrorCode code, const std::string& message) const {
    throw Failure{MakeError(code, "chat template, line {}: {}", line, message)};
}

void Meter::OverSteps() const {
    Fail(ErrorCode::kCorrupt, "rendering takes more than {} steps", limits_.steps);
}

// Take counted the bytes; their owner releases them.
void Meter::OverBytes(size_t bytes) {
    Fail(ErrorCode::kCorrupt,
         "rendering needs more memory than it may have: {} bytes more, with {} in use (at most {}) "
         "and {} made so far (at most {})",
         bytes, live_ - bytes, limits_.live_bytes, made_ - bytes, limits_.made_bytes);
}

void Meter::OverOutput() const {
    Fail(ErrorCode::kCorrupt, "the text is longer than {} bytes", limits_.output_bytes);
}

// The failed level has no destructor that leaves it.
void Meter::OverDepth() {
    --depth_;
    Fail(ErrorCode::kCorrupt, "nested more than {} levels deep (a macro that calls itself?)",
         limits_.depth);
}

}  // namespace weft::chat::jinja
