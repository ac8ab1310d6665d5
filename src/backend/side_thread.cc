#include "backend/side_thread.h"

#include <chrono>
#include <utility>

#include "base/start_thread.h"
#include "hw/cpu.h"

namespace weft::backend {
namespace {

constexpr std::chrono::milliseconds kLongWait{50};

}  // namespace

SideThread::~SideThread() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

Result<int64_t> SideThread::Start(std::function<void()> job) {
    if (!thread_.joinable()) WEFT_TRY(StartThread(thread_, [this] { Work(); }));
    {
        const std::lock_guard lock(mutex_);
        jobs_.push_back(std::move(job));
        ++started_;
    }
    changed_.notify_all();
    return started_;
}

void SideThread::Wait(int64_t number, coll::Comm* group) {
    const auto is_done = [&] { return done_ >= number; };
    std::unique_lock lock(mutex_);
    if (group == nullptr) return changed_.wait(lock, is_done);
    if (changed_.wait_for(lock, kLongWait, is_done)) return;
    group->SetAwaitsOwn(true, thread_.get_id());
    changed_.wait(lock, is_done);
    group->SetAwaitsOwn(false, thread_.get_id());
}

void SideThread::Work() {
    // Otherwise the thread would inherit the affinity of its creator, which is pinned to one core.
    RunThisThreadOn(cores_);
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
