// Times of each op of a traced step, on the host's clock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/executable.h"

namespace weft::backend::vulkan {

class OpTimes {
  public:
    void Clear();
    // A stage begins. Its submissions are submitted together, after all work noted before.
    void BeginStage() { stage_ = timings_.size(); }

    // Notes a timing on the host's clock.
    void Note(const OpTiming& timing);
    // Notes a submission of `ops` in this order. times: in ns on the device's clock, the begin of
    // the first op, then the end of each op. heard_ns: when the host learned that the submission
    // had ended, possibly late. Times on the host's clock are computed backward from heard_ns.
    // Timings of the stage's earlier submissions are moved back if they would overlap.
    void NoteSubmission(std::span<const int32_t> ops, std::span<const int64_t> times,
                        int64_t heard_ns);

    std::span<const OpTiming> timings() const { return timings_; }

  private:
    void EndBefore(int64_t ns);

    std::vector<OpTiming> timings_;
    size_t stage_ = 0;  // the first timing of this stage
};

}  // namespace weft::backend::vulkan
