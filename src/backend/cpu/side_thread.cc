#include "backend/cpu/side_thread.h"

#include <sched.h>

#include <utility>

namespace weft::backend {

SideThread::~SideThread() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

int64_t SideThread::Start(std::function<void()> job) {
    {
        const std::lock_guard lock(mutex_);
        jobs_.push_back(std::move(job));
        ++started_;
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
    changed_.notify_all();
    return started_;
}

void SideThread::Wait(int64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= number; });
}

void SideThread::Work() {
    // Else it would have the affinity of the thread that made it, which is pinned to one core.
    if (!cores_.empty()) {
        cpu_set_t set;
        CPU_ZERO(&set);
        for (int core : cores_) CPU_SET(static_cast<size_t>(core), &set);
        ::sched_setaffinity(0, sizeof set, &set);
    }
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        const std::function<void()> job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        job();
        lock.lock();
        ++done_;
        changed_.notify_all();
    }
}

}  // namespace weft::backend
