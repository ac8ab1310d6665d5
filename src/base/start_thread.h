// Starts a thread although processes and threads may be short for some seconds (a container's
// limit, 'ulimit -u'): tries again for kThreadMs. (std::thread alone throws, which ends a process.)
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "base/result.h"

namespace weft {

inline constexpr int64_t kThreadMs = 5000;

// `thread` then runs `work`, and must be joined. Errors: kIo.
Status StartThread(std::thread& thread, const std::function<void()>& work);

}  // namespace weft
