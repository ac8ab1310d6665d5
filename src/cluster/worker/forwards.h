// Forwards: a listening worker passes bytes between callers and the workers of hosts on its own
// cables, so that rank 0 reaches a host that is not a neighbor (DialWorker). The caller has proved
// the key to this worker (handshake.h), and then talks to the other worker, to which it proves the
// key again. This process sees sealed frames only. Thread: one caller; each connection has a
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace weft::cluster {

inline constexpr size_t kMostForwards = 64;
inline constexpr int64_t kForwardDialMs = 3000;

class Forwards {
  public:
    Forwards();
    // Closes all connections.
    ~Forwards();
    Forwards(const Forwards&) = delete;
    Forwards& operator=(const Forwards&) = delete;

    // Dials the first of `addresses` that answers, at their port or (not 0) at `port`, and passes
    // bytes in both directions until an end closes. Returns at once. who: the caller, for messages.
    // Errors: kUsage (no address), kIo (too many connections, no thread).
    Status Begin(Fd caller, const std::vector<std::string>& addresses, uint16_t port,
                 const std::string& who);

  private:
    struct One {
        std::thread thread{};
        std::atomic<bool> over{false};
    };
    void Reap();

    const Fd cancel_;  // readable: all threads end
    std::list<One> all_;
};

}  // namespace weft::cluster
