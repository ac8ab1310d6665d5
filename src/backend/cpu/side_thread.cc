#include "backend/cpu/side_thread.h"

#include <sched.h>

#include <utility>

#include "base/check.h"

namespace weft::backend {

SideThread::~SideThread() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void SideThread::Start(std::function<void()> job) {
    {
        const std::lock_guard lock(mutex_);
        WEFT_CHECK(!job_);
        job_ = std::move(job);
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
    changed_.notify_all();
}

void SideThread::Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !job_; });
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
        changed_.wait(lock, [&] { return stop_ || job_; });
        if (!job_) return;
        lock.unlock();
        job_();
        lock.lock();
        job_ = nullptr;
        changed_.notify_all();
    }
}

}  // namespace weft::backend
