// Time limits of tests. A test waits for an event. Its limit only ends a hang, so it is wide enough
// for a busy machine; no test measures the load.
//
//   LimitMs(ms)      upper bound in milliseconds for work that takes `ms` on an idle machine
//   LimitNs(ms)      the same bound in nanoseconds
//   Limit(ms)        the same bound as a Deadline from now
//   LimitSeconds(s)  upper bound in seconds for work that takes `s` on an idle machine
//   TimeoutMs(ms)    value for an option such as --timeout-ms: short enough for a test to wait
//                    until it expires, long enough for a live process on a busy machine to keep it
//
// A test of speed itself needs an idle machine: SKIP_UNLESS_NIGHTLY() of support/nightly.h.
#pragma once

#include <cstdint>

#include "base/deadline.h"
#include "support/nightly.h"

namespace weft::test {

inline int64_t LimitMs(int64_t ms) {
    return ms * (Nightly() ? 4 : 10);
}

inline int64_t LimitNs(int64_t ms) {
    return LimitMs(ms) * 1'000'000;
}

inline double LimitSeconds(double seconds) {
    return seconds * static_cast<double>(LimitMs(1));
}

inline Deadline Limit(int64_t ms) {
    return Deadline::In(LimitMs(ms));
}

constexpr int64_t TimeoutMs(int64_t ms) {
    return 4 * ms;
}

}  // namespace weft::test
