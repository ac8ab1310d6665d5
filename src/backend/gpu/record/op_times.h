// Times of each op of a traced step, on the host's clock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/executable.h"

namespace weft::backend::on_gpu {

class OpTimes {
  public:
    void Clear();
    // Marks the beginning of a stage. The submissions of a stage are submitted together, after the
    // end of all work that was noted before.
    void BeginStage() { stage_ = timings_.size(); }

    // Notes a timing on the host's clock.
    void Note(const OpTiming& timing);
    // Notes a submission that ran `ops` in this order. times: the beginning of the first op, then
    // the end of each op, in ns on the device's clock. heard_ns: the time at which the host learned
    // that the submission had ended; the submission may have ended much earlier. The times on the
    // host's clock are computed backward from heard_ns. If timings of earlier submissions of the
    // stage would overlap with the new ones, the earlier submissions' timings are moved to earlier
    // times.
    void NoteSubmission(std::span<const int32_t> ops, std::span<const int64_t> times,
                        int64_t heard_ns);

    std::span<const OpTiming> timings() const { return timings_; }

  private:
    void EndBefore(int64_t ns);

    std::vector<OpTiming> timings_;
    size_t stage_ = 0;  // the first timing of this stage
};

}  // namespace weft::backend::on_gpu
