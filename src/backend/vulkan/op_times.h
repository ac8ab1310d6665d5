// When each op of a traced step ran, on the host's clock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/executable.h"

namespace weft::backend::vulkan {

class OpTimes {
  public:
    void Clear();
    // Submissions from here on are handed over at once, behind all that was noted before.
    void BeginStage() { stage_ = timings_.size(); }

    // By the host's clock.
    void Note(const OpTiming& timing);
    // A submission of `ops` in their order, whose device says, in ns on a clock of its own, when
    // the first began and when each ended; the host heard of its end at `heard_ns`. That may be
    // late: what it says counts back from there, and the submissions before it had ended by then.
    void NoteSubmission(std::span<const int32_t> ops, std::span<const int64_t> times,
                        int64_t heard_ns);

    std::span<const OpTiming> timings() const { return timings_; }

  private:
    void EndBefore(int64_t ns);

    std::vector<OpTiming> timings_;
    size_t stage_ = 0;  // the first timing of this stage
};

}  // namespace weft::backend::vulkan
