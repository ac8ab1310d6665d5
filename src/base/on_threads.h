// Runs calls on several threads: independent ones (OnThreads), and ones that wait for each other
// (AllAtOnce).
#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"

namespace weft {

// Calls work(i) once for each i below `count`, on `threads` threads (at least one), of which the
// caller is one; on fewer if the system allows no more. Calls begin in ascending order of i; after
// an error, none begins. Returns the first error. The threads may run on the caller's cores
// (hw/cpu.h: PinnedThread).
Status OnThreads(size_t threads, size_t count, const std::function<Status(size_t)>& work);

// Calls work(i) once for each i below `count`, all at the same time, each on its own thread; the
// caller runs one. Errors: kIo (the system allows too few threads; then no call begins).
Status AllAtOnce(size_t count, const std::function<void(size_t)>& work);

}  // namespace weft
