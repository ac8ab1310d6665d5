#include "backend/gpu/record/op_times.h"

namespace weft::backend::on_gpu {

void OpTimes::Clear() {
    timings_.clear();
    stage_ = 0;
}

// An op may have parts in several submissions.
void OpTimes::Note(const OpTiming& timing) {
    if (timings_.size() > stage_ && timings_.back().op == timing.op) {
        timings_.back().end_ns = timing.end_ns;
    } else {
        timings_.push_back(timing);
    }
}

void OpTimes::NoteSubmission(std::span<const int32_t> ops, std::span<const int64_t> times,
                             int64_t heard_ns) {
    if (times.size() != ops.size() + 1) return;  // the device reported no times
    const auto on_host = [&](size_t i) { return heard_ns - (times.back() - times[i]); };
    EndBefore(on_host(0));
    for (size_t i = 0; i < ops.size(); ++i) {
        Note({ops[i], on_host(i), on_host(i + 1), 0});
    }
}

void OpTimes::EndBefore(int64_t ns) {
    const std::span<OpTiming> before = std::span(timings_).subspan(stage_);
    if (before.empty() || before.back().end_ns <= ns) return;
    const int64_t late_ns = before.back().end_ns - ns;
    for (OpTiming& timing : before) {
        timing.begin_ns -= late_ns;
        timing.end_ns -= late_ns;
    }
}

}  // namespace weft::backend::on_gpu
