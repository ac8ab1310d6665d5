#include "base/on_threads.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/start_thread.h"

namespace weft {
namespace {

void JoinAll(std::vector<std::thread>& threads) {
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

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
    std::vector<std::thread> others;
    for (size_t i = 1; i < std::min(threads, count); ++i) {
        std::thread other;
        if (!StartThread(other, run, {.wait_ms = 0}).ok()) break;  // the others do its calls
        others.push_back(std::move(other));
    }
    run();
    JoinAll(others);
    return first_error;
}

Status AllAtOnce(size_t count, const std::function<void(size_t)>& work) {
    enum class Gate { kClosed, kOpen, kGivenUp };
    if (count == 0) return {};
    std::atomic<Gate> gate{Gate::kClosed};
    std::vector<std::thread> others;
    Status started;
    for (size_t i = 1; i < count && started.ok(); ++i) {
        std::thread other;
        started = StartThread(other, [&, i] {
            gate.wait(Gate::kClosed);
            if (gate == Gate::kOpen) work(i);
        });
        if (started.ok()) others.push_back(std::move(other));
    }
    gate = started.ok() ? Gate::kOpen : Gate::kGivenUp;
    gate.notify_all();
    if (started.ok()) work(0);
    JoinAll(others);
    return started;
}

}  // namespace weft
