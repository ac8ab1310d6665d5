#include "base/on_threads.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace weft {

Status OnThreads(size_t threads, size_t count, const std::function<Status(size_t)>& work) {
    std::atomic<size_t> next{0};
    std::mutex mutex;
    Status first_error;
    const auto run = [&] {
        for (size_t i = next++; i < count; i = next++) {
            Status status = work(i);
            if (status.ok()) continue;
            next = count;
            const std::lock_guard lock(mutex);
            if (first_error.ok()) first_error = std::move(status);
        }
    };
    std::vector<std::jthread> others;
    try {
        for (size_t i = 1; i < std::min(threads, count); ++i) others.emplace_back(run);
    } catch (const std::system_error&) {
        // The system allows no more threads (a container's limit): those that run do all calls.
    }
    run();
    others.clear();  // waits
    return first_error;
}

}  // namespace weft
