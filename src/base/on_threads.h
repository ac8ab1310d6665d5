// Runs independent calls on several threads.
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

}  // namespace weft
