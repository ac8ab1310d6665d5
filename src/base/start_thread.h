// Starts a thread although processes and threads may be short for some seconds (a container's
// limit, 'ulimit -u'): tries again for some time. All threads of the program start here, because
// the constructor of std::thread throws, which ends a process.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "base/result.h"

namespace weft {

inline constexpr int64_t kThreadMs = 5000;
// Explains EPERM for a new thread or process.
inline constexpr const char* kForbidsClone3 =
    "A container's seccomp profile forbids clone3: update the container runtime (Docker 20.10.10 "
    "or newer), or pass --security-opt seccomp=unconfined";

struct ThreadOptions {
    int64_t wait_ms = kThreadMs;  // time for tries; 0: a single try
    bool signals = true;          // false: the thread blocks all, so that another one handles them
};

// `thread` then runs `work`, and must be joined or detached. Errors: kIo.
Status StartThread(std::thread& thread, const std::function<void()>& work,
                   const ThreadOptions& options = {});

}  // namespace weft
