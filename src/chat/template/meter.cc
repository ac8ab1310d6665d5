#include "chat/template/meter.h"

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
    Fail(ErrorCode::kCorrupt, "rendering took more than {} ms of CPU time", limits_.cpu_ms);
}

void Meter::Throw(ErrorCode code, const std::string& message) const {
    throw Failure{MakeError(code, "chat template, line {}: {}", line, message)};
}

void Meter::OverSteps() const {
    Fail(ErrorCode::kCorrupt, "rendering took more than {} steps", limits_.steps);
}

// Take counted the bytes; their owner releases them.
void Meter::OverBytes(size_t bytes) {
    Fail(ErrorCode::kCorrupt,
         "rendering exceeds its memory limit: {} more bytes are needed, {} are in use (limit {}), "
         "{} were allocated in total (limit {})",
         bytes, live_ - bytes, limits_.live_bytes, made_ - bytes, limits_.made_bytes);
}

void Meter::OverOutput() const {
    Fail(ErrorCode::kCorrupt, "the rendered text is longer than {} bytes", limits_.output_bytes);
}

// The failed level has no destructor that leaves it.
void Meter::OverDepth() {
    --depth_;
    Fail(ErrorCode::kCorrupt, "evaluation nests deeper than {} levels; does a macro call itself?",
         limits_.depth);
}

}  // namespace weft::chat::jinja
