// A clock that takes a few nanoseconds to read, for the timing of every collective.
//
// Ticks are values of the CPU's time stamp counter if the kernel uses that counter as its clock;
// then it is the same on all cores and for all processes of a host. Otherwise ticks are nanoseconds
// of the steady clock. The length of a tick in nanoseconds is measured when it is needed.
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
    // Converts recent ticks to nanoseconds of the steady clock, in place.
    void ToNs(std::span<int64_t> ticks) const;

  private:
    struct Moment {
        int64_t ticks, ns;
    };
    // Reads both clocks, again if the system takes the processor away between the two.
    Moment Read() const;

    bool by_counter_;
    Moment first_;
};

// A deadline in `ms` milliseconds that may be a few milliseconds late. It uses a clock that is much
// faster to read than NowNs.
Deadline CoarseDeadline(int64_t ms);

}  // namespace weft::coll
