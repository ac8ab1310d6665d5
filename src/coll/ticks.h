// A clock that costs a few nanoseconds to read, for the times that every collective takes.
//
// Ticks are those of the CPU's time stamp counter where the kernel keeps its own time by it (then
// all cores, and all processes of a host, agree on it), else nanoseconds of the steady clock. What
// they mean in nanoseconds is found out when somebody asks.
#pragma once

#include <cstdint>
#include <span>

#include "base/deadline.h"

namespace weft::coll {

class TickClock {
  public:
    TickClock();

    int64_t Now() const {
#if defined(__x86_64__)
        if (by_counter_) return static_cast<int64_t>(__builtin_ia32_rdtsc());
#endif
        return NowNs();
    }
    // Turns ticks of the recent past into nanoseconds of the steady clock, in place.
    void ToNs(std::span<int64_t> ticks) const;

  private:
    bool by_counter_;
    int64_t first_ticks_;
    int64_t first_ns_;
};

// A deadline `ms` from now, up to a few milliseconds late: its clock is read at a fraction of the
// cost of NowNs.
Deadline CoarseDeadline(int64_t ms);

}  // namespace weft::coll
